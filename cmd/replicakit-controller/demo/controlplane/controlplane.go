// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane starts a real etcd and a real kube-apiserver on free
// ports of 127.0.0.1, and programs beside them, for demo, benchmark and tests.
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
	// Config is for an administrator.
	Config *rest.Config
	// Kubeconfig is the same as a file's content.
	Kubeconfig []byte

	env *envtest.Environment
	off func() // see BeforeTimeout
}

// Start starts the programs that make cluster-binaries built; see Binaries. args
// are more arguments of the API server: name and value.
func Start(binaries string, args map[string]string) (*ControlPlane, error) {
	env := &envtest.Environment{
		BinaryAssetsDirectory:    binaries,
		ControlPlaneStartTimeout: 5 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	for name, value := range args {
		env.ControlPlane.GetAPIServer().Configure().Append(name, value)
	}
	config, err := env.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("controlplane: starting the programs of %s: %w", binaries, err), env.Stop())
	}
	c := &ControlPlane{Config: config, Kubeconfig: env.KubeConfig, env: env}
	c.off = BeforeTimeout(func() { _ = env.Stop() })
	return c, nil
}

// Stop ends the programs and removes what they stored.
func (c *ControlPlane) Stop() error {
	c.off()
	return c.env.Stop()
}

// AddUser makes a user and returns the content of its kubeconfig. It may do what
// RBAC grants the name or the groups.
func (c *ControlPlane) AddUser(name string, groups ...string) (kubeconfig []byte, err error) {
	user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, err
	}
	return user.KubeConfig()
}

// Binaries returns the directory of the programs: KUBEBUILDER_ASSETS, or
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
