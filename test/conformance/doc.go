// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance holds the library against the code that it follows. Each
// test gives the same random input to Kubernetes 1.37.2 and to ours and compares
// what comes out.
//
// Where the two must agree they must do so in every case. Where ours differs on
// purpose the test has a name for the difference, recognises it by a predicate of
// its own, and counts it: a difference without a name fails. So does a name that
// never comes up.
//
//	go test ./...                               # the counts that each test states
//	go test -short ./...                        # a twentieth, but every named difference
//	CONFORMANCE_CASES=20 go test ./...          # twenty times as many
//	CONFORMANCE_SEED=7 go test ./...            # others
//
// A failure prints the smallest input that it could find and the command that
// plays the case again.
package conformance
