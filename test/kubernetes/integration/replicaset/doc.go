// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset is empty. The tests of k8s.io/kubernetes/test/integration/replicaset run in this
// package.
package replicaset
