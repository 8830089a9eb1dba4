// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package conformance_test

// share is one case in how many is run: the race detector takes ten times as
// long.
const share = 10
