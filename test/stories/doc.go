// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stories describes incidents and replays them with the real controller on the simulated cluster, in
// virtual time. If you read the files in testdata in the order of their numbers, you learn how pods are kept
// alive and what can go wrong.
//
//	go test ./... -run /07     # plays one story
//	go test ./... -rewrite     # writes the outputs anew: read every change
//
// A story consists of comments and steps. A step consists of commands, a line of dashes, and the output of
// the commands. The output begins with the events and their times. For each pass that did something, the
// output lists the creations in the order of the calls. The character "|" separates the batches of slow
// start. Next, the output lists each ReplicaSet with its status in the API server and with the changes that
// the controller still expects. Finally, the output lists the pods. Notes describe the differences between
// the controller's cache and the API server.
//
// The commands are defined in commands_test.go. A line that starts with "# ids:" lists the facts in
// docs/behaviour.md that the story as a whole proves.
package stories
