// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e has no code but its tests. They run the controllers of
// replicas/clientgo against a real etcd and a real kube-apiserver, with
// Kubernetes' own namespace, garbage-collector and resourcequota controllers
// beside them.
//
// Each test has a namespace of its own, with controllers that know nothing
// else. There is no kubelet and no scheduler: a test binds pods and writes their
// status itself. What the controllers say to the server is recorded, and so is
// every state that every pod was ever in, so that a test can tell what happened
// and not only what came out.
//
// The programs are built by make cluster-binaries into .cache/bin, or taken from
// KUBEBUILDER_ASSETS.
package e2e
