// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package conformance_test

// share divides the number of cases of every test.
const share = 1
