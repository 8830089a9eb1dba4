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
// .cache/bin of the repository that the working directory is in.
func Binaries() (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		root, err := Repository()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, ".cache", "bin")
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("controlplane: no %s in %s: run `make cluster-binaries`", name, dir)
		}
	}
	return dir, nil
}
