// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e has only tests. They run the controllers of replicas/clientgo on a real etcd and a real
// kube-apiserver, together with Kubernetes' own namespace, garbage-collector and resourcequota controllers.
//
// Each test has its own namespace, with controllers that know nothing else. There is no kubelet and no
// scheduler, so a test binds pods and writes their status itself. The calls of the controllers are
// recorded, and so is every state of every pod. So a test can check each step, and not only the result.
//
// The programs are built by make cluster-binaries into .cache/bin, or taken from KUBEBUILDER_ASSETS.
package e2e
