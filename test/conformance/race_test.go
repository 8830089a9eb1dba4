// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package conformance_test

// share divides the number of cases of every test, because tests take ten times as long with the race detector.
const share = 10
