// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane starts a real etcd and a real kube-apiserver on free
// ports of 127.0.0.1, and other programs, for demo, benchmark and tests.
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

// A ControlPlane is an API server with its store.
type ControlPlane struct {
	// Config has the rights of an administrator.
	Config *rest.Config
	// Kubeconfig is the same as Config, as the content of a file.
	Kubeconfig []byte

	env *envtest.Environment
	dir string // what the programs store
	off func() // see BeforeTimeout
}

// Start starts the programs that make cluster-binaries built; see Binaries. args
// are the values of additional arguments of the API server, by name.
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
	server.Configure().Set("shutdown-watch-termination-grace-period", "1s") // otherwise it waits a minute for watches to end by themselves
	for name, value := range args {
		server.Configure().Append(name, value)
	}
	// Directories of our own outlive a program, so that it can be started again; see WithoutStore.
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

// Stop ends the programs and removes what they stored.
func (c *ControlPlane) Stop() error {
	c.off()
	return c.end()
}

func (c *ControlPlane) end() error { return errors.Join(c.env.Stop(), os.RemoveAll(c.dir)) }

// WithoutStore ends the programs, calls do with the directory in which etcd stores everything, and
// starts the programs again at the same addresses.
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

// AddUser makes a user and returns the content of its kubeconfig. The user has the
// rights that RBAC grants the name or the groups.
func (c *ControlPlane) AddUser(name string, groups ...string) (kubeconfig []byte, err error) {
	user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, err
	}
	return user.KubeConfig()
}

// Binaries returns the directory of the programs. That is KUBEBUILDER_ASSETS if set, or
// .cache/bin of the nearest directory above that has it.
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
