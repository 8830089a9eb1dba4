// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance compares the library with the code that it follows. Each test gives the same random
// input to Kubernetes 1.37.2 and to ours, and compares the results.
//
// If the two must agree, they must do so in every case. If ours differs on purpose, the test has a name for
// the difference, recognizes it by a predicate, and counts it. A difference without a name fails. So does a
// name that is never used.
//
//	go test ./...                               # the counts that each test states
//	go test -short ./...                        # a twentieth, but every named difference
//	CONFORMANCE_CASES=20 go test ./...          # twenty times as many
//	CONFORMANCE_SEED=7 go test ./...            # others
//
// A failure prints the smallest input that it could find, and the command that repeats the case.
package conformance
