// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench compares this library with Kubernetes. In each run, the library and Kubernetes do the same
// work on the same pods.
//
//	make bench                               # everything, into docs/benchmarks.md
//	go test -bench Choose -benchtime 100ms   # one work
//	go test ./...                            # each benchmark once, small: that both sides do the same
//
// Each benchmark has up to three sides. side=kubernetes is the code of Kubernetes itself, and side=ours is
// this library. side=floor is a lower bound, for example a single read of the necessary memory.
//
// The program in the directory cluster measures a whole controller on real servers. Run it with make
// bench-cluster.
package bench
