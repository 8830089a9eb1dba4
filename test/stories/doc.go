// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stories tells incidents in prose and plays them on the simulated
// cluster, with the real controller, in virtual time. Read
// testdata in the order of its numbers: it teaches how pods are kept alive, and
// what can go wrong.
//
//	go test ./... -run /07     # plays one story
//	go test ./... -rewrite     # writes the outputs anew: read every change
//
// A story is prose in comments, and steps: some commands, a line of dashes, and
// what comes out. First, what happened, and when: each pass that did something,
// its creations in the order of the calls, with "|" where a batch of slow start
// must end: calls that are not tried show that it does. Then
// the ReplicaSets with the status that the API server has, and what the controller
// still expects. Then the pods. A note tells where the controller's cache differs.
//
// The commands are those of commands_test.go. An "# ids:" line names the facts of
// docs/behaviour.md that the whole story proves.
package stories
