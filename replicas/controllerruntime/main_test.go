// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
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

// shared is a real API server. It starts when a test calls realServer for the first time.
var (
	shared      = &envtest.Environment{BinaryAssetsDirectory: binaries(), ControlPlaneStartTimeout: 5 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	startShared = sync.OnceValues(shared.Start)
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code := m.Run()
	_ = shared.Stop()
	os.Exit(code)
}

// realServer returns the config of the API server that tests share.
func realServer(tb testing.TB) *rest.Config {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a server: make test-servers")
	}
	config, err := startShared()
	require.NoError(tb, err, "etcd and kube-apiserver, which `make test-servers` builds")
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 1000, 1000
	return config
}

// binaries returns the directory that contains etcd and kube-apiserver.
func binaries() string {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", ".cache", "bin")
}
