// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench runs the library and Kubernetes side by side: the same work on
// the same pods, in one run.
//
//	make bench                               # everything, into docs/benchmarks.md
//	go test -bench Choose -benchtime 100ms   # one work
//	go test ./...                            # each benchmark once, small: that both sides do the same
//
// Each benchmark has up to three sides: side=kubernetes is the code of Kubernetes
// itself, side=ours this library, and side=floor what no implementation could be
// faster than, such as a bare pass over the memory that must be read.
//
// What these pieces come to in a whole controller is measured by the program in
// cluster, on real servers: make bench-cluster.
package bench
