// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicationcontroller is empty. The tests of
// k8s.io/kubernetes/test/integration/replicationcontroller run in this package.
package replicationcontroller
