// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance compares this library with the code of Kubernetes that it follows. Each test gives the
// same random input to Kubernetes 1.37.2 and to this library, and compares the results.
//
// If the two must agree, they must agree in every case. If this library differs on purpose, the test has a
// name for the difference, recognizes it by a predicate, and counts it. A difference without a name makes the
// test fail. A name that is never used also makes the test fail.
//
//	go test ./...                               # the counts that each test states
//	go test -short ./...                        # a twentieth, but every named difference
//	CONFORMANCE_CASES=20 go test ./...          # twenty times as many
//	CONFORMANCE_SEED=7 go test ./...            # others
//
// A failing test prints the smallest failing input that it has found, and the command that repeats the case.
package conformance
