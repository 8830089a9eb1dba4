// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicationcontroller is the package in which the tests of
// k8s.io/kubernetes/test/integration/replicationcontroller run.
package replicationcontroller
