// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package conformance_test

// share is one case in how many is run.
const share = 1
