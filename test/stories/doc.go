// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stories describes incidents and plays them on the simulated cluster, with the real controller, in
// virtual time. Read testdata in the order of its numbers. It teaches how pods are kept alive, and what can
// go wrong.
//
//	go test ./... -run /07     # plays one story
//	go test ./... -rewrite     # writes the outputs anew: read every change
//
// A story has prose in comments, and steps. A step has commands, a line of dashes, and the output. The
// output begins with the times and events. It has each pass that did something, with its creations in the
// order of the calls. "|" marks the end of a batch of slow start, which shows in calls that are not tried.
// Then come the ReplicaSets with the status in the API server, and what the controller still expects. Then
// come the pods. A note says where the controller's cache differs.
//
// The commands are in commands_test.go. An "# ids:" line names the facts of docs/behaviour.md that the
// whole story proves.
package stories
