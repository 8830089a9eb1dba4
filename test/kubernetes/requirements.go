// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build never

// Package main does not need this file, and the file is never built. Because of the imports in this file,
// go.mod keeps the modules that Kubernetes' tests need.
package main

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/onsi/gomega"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	_ "k8s.io/kubernetes/pkg/controller/replication"
	_ "k8s.io/kubernetes/test/integration/framework"
	_ "k8s.io/kubernetes/test/utils/ktesting"

	_ "github.com/replicakit/replicakit/replicas"
	_ "github.com/replicakit/replicakit/replicas/clientgo"
)
