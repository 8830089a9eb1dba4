// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicationcontroller is where
// k8s.io/kubernetes/test/integration/replicationcontroller runs.
package replicationcontroller
