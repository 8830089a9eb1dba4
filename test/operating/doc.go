// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operating tests the files for users of cmd/replicakit-controller. An API server and the
// Prometheus operator must accept the manifests. Each alert must fire when it should, and must not fire for
// a healthy manager. Everything that docs/operating.md names must exist.
package operating
