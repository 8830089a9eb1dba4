// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

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

// config is that of a real API server, which all tests share.
var config *rest.Config

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	env := &envtest.Environment{BinaryAssetsDirectory: binaries(), ControlPlaneStartTimeout: 5 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	defer func() { _ = env.Stop() }()
	var err error
	if config, err = env.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "starting etcd and kube-apiserver, which `make cluster-binaries` builds:", err)
		return 1
	}
	config.QPS, config.Burst = 1000, 1000
	return m.Run()
}

// binaries returns where etcd and kube-apiserver are.
func binaries() string {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", ".cache", "bin")
}
