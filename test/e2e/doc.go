// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e contains only tests. The tests run the controllers of replicas/clientgo on a real etcd and a
// real kube-apiserver. The namespace controller, the garbage collector and the resourcequota controller of
// Kubernetes also run.
//
// Each test has its own namespace, and its controllers watch only this namespace. There is no kubelet and
// no scheduler. Instead, each test binds its pods and writes their status. The tests record the
// controllers' calls and every state of every pod. Therefore the tests can check each step as well as the
// result.
//
// If the environment variable KUBEBUILDER_ASSETS is set, the tests use the programs in that directory.
// Otherwise the tests use the programs that `make cluster-binaries` builds in .cache/bin.
package e2e
