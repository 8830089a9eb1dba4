// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stories describes incidents and plays them on the simulated cluster, with the real controller, in
// virtual time. If you read the files in testdata in the order of their numbers, you learn how pods are kept
// alive and what can go wrong.
//
//	go test ./... -run /07     # plays one story
//	go test ./... -rewrite     # writes the outputs anew: read every change
//
// A story has prose in comments, and steps. A step has commands, a line of dashes, and the output of the
// commands. The output begins with the events and their times. For each pass that did something, the output
// lists the creations in the order of the calls. The character "|" separates the batches of slow start. Next,
// the output lists the ReplicaSets with their status in the API server, and with the changes that the
// controller still expects. Finally, the output lists the pods. Notes say how the controller's cache differs
// from the API server.
//
// The commands are defined in commands_test.go. A line with "# ids:" names the facts in docs/behaviour.md
// that the whole story proves.
package stories
