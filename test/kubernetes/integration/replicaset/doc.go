// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset is where k8s.io/kubernetes/test/integration/replicaset runs.
package replicaset
