// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane starts a real etcd and a real kube-apiserver on free ports of 127.0.0.1. It
// can also start other programs. The demo, the benchmarks and the tests use this package.
package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// A ControlPlane is an API server with its etcd.
type ControlPlane struct {
	// Config is a client configuration with the rights of an administrator.
	Config *rest.Config
	// Kubeconfig is the content of a kubeconfig file for the same user as Config.
	Kubeconfig []byte

	env *envtest.Environment
	dir string // the directory for the data of the programs
	off func() // see BeforeTimeout
}

// Start starts etcd and kube-apiserver from the given directory; see Binaries. To build them, run
// `make cluster-binaries`. The map args contains additional arguments of kube-apiserver, by name.
func Start(binaries string, args map[string]string) (*ControlPlane, error) {
	dir, err := os.MkdirTemp("", "controlplane-")
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{dir: dir, env: &envtest.Environment{
		BinaryAssetsDirectory:    binaries,
		ControlPlaneStartTimeout: 5 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}}
	server := c.env.ControlPlane.GetAPIServer()
	server.Configure().Set("shutdown-watch-termination-grace-period", "1s") // by default, the server waits a minute for watches to end
	for name, value := range args {
		server.Configure().Append(name, value)
	}
	// If envtest creates the directories of the programs, envtest also removes these directories
	// when it stops the programs. But WithoutStore restarts the programs with the same directories,
	// so Start creates the directories itself.
	c.env.ControlPlane.Etcd, server.CertDir = &envtest.Etcd{DataDir: filepath.Join(dir, "etcd")}, filepath.Join(dir, "apiserver")
	err = errors.Join(os.Mkdir(c.env.ControlPlane.Etcd.DataDir, 0o700), os.Mkdir(server.CertDir, 0o700))
	if err == nil {
		c.Config, err = c.env.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("controlplane: starting the programs of %s: %w", binaries, err), c.end())
	}
	c.Kubeconfig = c.env.KubeConfig
	c.off = BeforeTimeout(func() { _ = c.end() })
	return c, nil
}

// Stop ends the programs and removes their data.
func (c *ControlPlane) Stop() error {
	c.off()
	return c.end()
}

func (c *ControlPlane) end() error { return errors.Join(c.env.Stop(), os.RemoveAll(c.dir)) }

// WithoutStore stops the programs, and passes the data directory of etcd to the given function. It
// then starts the programs again at the same addresses.
func (c *ControlPlane) WithoutStore(do func(dir string) error) error {
	server, etcd := c.env.ControlPlane.GetAPIServer(), c.env.ControlPlane.Etcd
	if err := errors.Join(server.Stop(), etcd.Stop()); err != nil {
		return fmt.Errorf("controlplane: stopping the programs: %w", err)
	}
	if err := errors.Join(do(etcd.DataDir), etcd.Start(), server.Start()); err != nil {
		return fmt.Errorf("controlplane: starting the programs again: %w", err)
	}
	return nil
}

// AddUser creates a user and returns the content of a kubeconfig file for that user. The user has
// the rights that RBAC grants to its name or its groups.
func (c *ControlPlane) AddUser(name string, groups ...string) (kubeconfig []byte, err error) {
	user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, err
	}
	return user.KubeConfig()
}

// Binaries returns the directory that contains the programs. If KUBEBUILDER_ASSETS is set, Binaries
// returns its value. Otherwise, Binaries searches the working directory and its parents for a
// directory .cache/bin that contains kube-apiserver.
func Binaries() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		binaries := filepath.Join(dir, ".cache", "bin")
		if _, err := os.Stat(filepath.Join(binaries, "kube-apiserver")); err == nil {
			return binaries, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("controlplane: no .cache/bin/kube-apiserver in any directory above: run `make cluster-binaries`")
		}
	}
}
