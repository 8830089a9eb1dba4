// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset is the package in which the tests of k8s.io/kubernetes/test/integration/replicaset run.
package replicaset
