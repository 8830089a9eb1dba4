// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// shared is a real API server with the CRDs. The server starts when a test first needs it.
var shared = newServer()

var start = sync.OnceValues(shared.Start)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	if kubeconfig := os.Getenv(kubeconfigVariable); kubeconfig != "" {
		if err := operator(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	_ = shared.Stop()
	os.Exit(code)
}

// server returns the client configuration of the API server that the tests share.
func server(t *testing.T) *rest.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server: make test-servers")
	}
	config, err := start()
	require.NoError(t, err, "etcd and kube-apiserver, which `make test-servers` builds")
	return config
}

func newServer() *envtest.Environment {
	server := &envtest.APIServer{}
	server.Configure().Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement") // OpenShift enables this plugin too
	return &envtest.Environment{
		ControlPlane:          envtest.ControlPlane{APIServer: server},
		BinaryAssetsDirectory: binaries(), CRDDirectoryPaths: []string{filepath.Join("config", "crd")}, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: 5 * time.Minute, ControlPlaneStopTimeout: time.Minute,
	}
}

// binaries returns the directory that contains etcd, kube-apiserver and kubectl.
func binaries() string {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", ".cache", "bin")
}
