// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller carries out the decisions of package replicas. A Controller keeps the wanted number
// of children for all owners of one kind on one API server, with any client. A Kind describes a kind of
// owner. The functions ReplicaSets and ReplicationControllers return ready-made Kinds, and you can write a
// Kind for your own types.
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	...
//	pods.AddEventHandler(...)         // c.ChildAdded, c.ChildUpdated, c.ChildDeleted
//	replicaSets.AddEventHandler(...)  // c.OwnerAdded, c.OwnerUpdated, c.OwnerDeleted
//	...
//	requeueAfter, err := c.Sync(ctx, key) // what a worker does with a key of the queue
//
// The caller provides the client, the caches with their watches, and the work queue with its workers. The
// modules replicas/clientgo and replicas/controllerruntime have all of these. Two Controllers must not work
// for the same owner at the same time. A Controller uses one API server. For two clusters, make two
// Controllers.
//
// The Controller never creates or deletes children on the basis of a view that is known to be old. If an
// answer of the server is lost, no extra child is created. See Controller.Sync.
package controller

// The files of the package, for those who work on it:
//
//	pass.go     the steps of a pass, and the type Pass, which says what a pass did
//	owner.go    the owner that the pass uses, and whether the owner on the server still wants the same
//	view.go     the children that the pass plans on: cache, live lists, the first list of a process; slots
//	claim.go    adoptions and releases
//	scale.go    the part of a plan that is carried out: holds, Kind.Prepare, the room, pods that fail
//	lost.go     calls of earlier passes without an answer, and how the pass finds their results
//	create.go   creations, holds after their failures, and children that a webhook made useless
//	delete.go   deletions, and what a Conflict means for them
//	status.go   the counts of the children, and the status write
//	gates.go    each reason to hold something back, with its times, in one table
//	ask.go      all calls to the server, what the ledger learns from each, live lists, restores
//	memory.go   the state of an owner that outlives a pass
//	events.go   the event handlers: which owners they wake, and what they settle
//	metrics.go, controller.go, client.go and kind.go have what users see.
//
// Some rules are in other packages. Package replicas decides how many children there should be, and its
// type Room limits the creations and deletions of a pass. Package ledger says what is known of the children
// beyond the cache, and settles requests that had no answer. Package slowstart limits how fast children are
// created. Another kind of child or owner needs only another Kind, and no code in this package. If an owner
// had two kinds of children, one Kind would have to serve both, because two Controllers would overwrite
// each other's status of the owner.
//
// The effect of a Conflict depends on the call. After a Conflict, a deletion is decided again on a live
// list (delete.go, again). The status is written again for the owner as the server has it then (status.go,
// writeStatus). A claim is tried again by a later pass (claim.go, undecidedAdoptions and failedReleases). A
// stray is read again, and is deleted if it is still a stray (create.go, deleteStray).
//
// The type reconciler keeps the state that outlives a pass and is not about one owner. This state has the
// writes that the cache does not show yet (writes), failed live lists (lists), the term, proofs of a
// restore, the newest event, parsed specs and the counts of metrics. All of this state ends with the
// process.
//
// If all caches returned their version and all clients were Versioners, some code could be removed. In this
// package, that is the second half of count in status.go and the type newest in events.go. In package
// ledger, it is Snapshot.Newest, Ledger.passed and word.cachedAs. The list for each owner of a new process
// (view.go, plan) would remain, for caches that are late.
