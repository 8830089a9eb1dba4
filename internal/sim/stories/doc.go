// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stories describes incidents and replays them with the real controller on the simulated cluster,
// in virtual time. To learn how pods are kept alive and what can go wrong, read testdata/stories.txtar.
//
//	go test ./internal/sim/stories -run /07     # plays one story
//	go test ./internal/sim/stories -rewrite     # writes the outputs anew: read every change
//
// A story consists of comments and steps. A step consists of commands, a line of dashes, and the output of
// the commands. The output begins with the events and their times. For each pass that changed something,
// the output lists the creations in call order. The character "|" separates the batches of slow start.
// Next, the output lists each ReplicaSet with its status in the API server and with the changes that the
// controller still expects. Finally, the output lists the pods. Notes describe the differences between the
// controller's cache and the API server.
//
// The commands are defined in commands_test.go. A line that starts with "# ids:" lists facts of
// docs/behaviour.md. The whole story proves these facts.
package stories
