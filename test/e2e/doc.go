// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e has only tests. The tests run the controllers of replicas/clientgo on a real etcd and a real
// kube-apiserver, together with Kubernetes' own namespace, garbage-collector and resourcequota controllers.
//
// Each test has its own namespace, and its controllers watch only this namespace. There is no kubelet and no
// scheduler, so a test itself binds pods and writes their status. The controllers' calls and every state of
// every pod are recorded. Therefore a test can check each step as well as the result.
//
// If KUBEBUILDER_ASSETS is set, the tests use the programs in that directory. Otherwise the tests use the
// programs that make cluster-binaries builds in .cache/bin.
package e2e
