package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// config is that of a real API server with the CRDs, which all tests share.
var config *rest.Config

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	log.SetLogger(logr.Discard())
	env := newServer()
	defer func() { _ = env.Stop() }()
	var err error
	if config, err = env.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "starting etcd and kube-apiserver, which `make cluster-binaries` builds:", err)
		return 1
	}
	return m.Run()
}

func newServer() *envtest.Environment {
	return &envtest.Environment{
		BinaryAssetsDirectory: binaries(), CRDDirectoryPaths: []string{filepath.Join("config", "crd")}, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: time.Minute,
	}
}

// binaries returns where etcd, kube-apiserver and kubectl are.
func binaries() string {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", ".cache", "bin")
}
