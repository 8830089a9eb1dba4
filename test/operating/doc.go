// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operating tests what is for those who run cmd/replicakit-controller: that the
// manifests are what an API server and the Prometheus operator take, that each
// alert fires when it should and on nothing that a healthy manager says, and that
// docs/operating.md names what there is.
package operating
