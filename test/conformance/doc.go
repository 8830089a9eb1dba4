// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance compares this library with the Kubernetes code that the library follows. Each test
// gives the same random input to Kubernetes 1.37.2 and to this library, and compares the results.
//
// The results must be equal in every case, except where the library differs on purpose. For each intended
// difference, the test defines a name, a predicate that recognizes the difference, and a counter. The test
// fails if the results differ and no predicate recognizes the difference. It also fails if a named difference
// never occurs.
//
//	go test ./...                               # the counts that each test states
//	go test -short ./...                        # a twentieth, but every named difference
//	CONFORMANCE_CASES=20 go test ./...          # twenty times as many
//	CONFORMANCE_SEED=7 go test ./...            # others
//
// A failing test prints the smallest failing input that it has found. The test also prints a command that
// repeats the failure.
package conformance
