// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench runs the library and Kubernetes side by side, with the same work on the same pods, in one
// run.
//
//	make bench                               # everything, into docs/benchmarks.md
//	go test -bench Choose -benchtime 100ms   # one work
//	go test ./...                            # each benchmark once, small: that both sides do the same
//
// Each benchmark has up to three sides. side=kubernetes is the code of Kubernetes itself, and side=ours
// this library. side=floor is a bound that is hard to beat, such as a bare pass over the
// memory that must be read.
//
// The program in cluster measures a whole controller on real servers: make bench-cluster.
package bench
