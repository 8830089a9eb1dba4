// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operating tests the files for those who run cmd/replicakit-controller. An API server and the
// Prometheus operator must accept the manifests. Each alert must fire when it should, but not for a healthy
// manager. docs/operating.md must name what exists.
package operating
