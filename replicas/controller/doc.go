// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller carries out the decisions of package replicas. A Controller maintains the desired number of
// children for every owner of one kind on one API server, with any client. A Kind describes a kind of owner. The
// functions ReplicaSets and ReplicationControllers return ready-made Kinds, and you can write a Kind for your own
// types.
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	...
//	pods.AddEventHandler(...)         // c.ChildAdded, c.ChildUpdated, c.ChildDeleted
//	replicaSets.AddEventHandler(...)  // c.OwnerAdded, c.OwnerUpdated, c.OwnerDeleted
//	...
//	requeueAfter, err := c.Sync(ctx, key) // what a worker does with a key of the queue
//
// The caller provides the client, the caches with their watches, and the work queue with its workers, or uses the
// modules replicas/clientgo and replicas/controllerruntime, which provide all of these. Two Controllers must not work
// for the same owner at the same time. A Controller uses one API server, so make one Controller for each cluster.
//
// The Controller never creates or deletes children on the basis of a view that is known to be old, and a lost answer
// never leads to an extra child, within the limits of docs/guarantee.md. See Controller.Sync.
//
// # Two types of children
//
// If an owner has two types of children, such as pods and Services, write two Kinds and make a Controller of each. Each
// Kind has its own children, its own limits and its own Spec.Finalizer, so the owner can stay until the last child of
// both types is gone. The Status of each Kind must set only its own part of the owner's status, for example one
// condition, and never the whole status. A Kind that has nothing to report has no Status. Only one of them should set
// observedGeneration, because its readers then take the whole status to be up to date. The other one can set the
// ObservedGeneration of its condition.
//
// A status write carries the resourceVersion of the owner, so neither Controller can undo what the other has written.
// But a write of one costs the other a pass, because the owner has changed. If the other's cache does not show that
// write yet, it also costs a Conflict and a read, after which the other writes again. In the adapters replicas/clientgo
// and replicas/controllerruntime, the second Kind needs Options.Name.
package controller

// The files of the package, for those who work on it:
//
//	pass.go     the steps of a pass in their order, and the type Pass, which says what a pass did
//	owner.go    the owner that the pass uses, its Spec, and whether the owner on the server makes the same plan
//	view.go     the plan, the children on which it is based, from the cache or a live list, the terms and the
//	            server's versions, and the slots
//	claim.go    adoptions and releases, and which new children are the owner's
//	scale.go    the part of a plan that is carried out: holds, Kind.Prepare, the room, children that end soon
//	update.go   changes in place, their holds, and children that must be replaced because theirs was refused
//	create.go   creations, and holds after their failures
//	delete.go   deletions, what a Conflict means for them, and children that a webhook took from the owner
//	lost.go     calls without an answer, of this pass and of earlier ones, and how the pass finds their results
//	status.go   the counts of the children, and the status write
//	gates.go    the table of reasons to hold something back, with their delays, and when the next pass comes
//	ask.go      all calls of a pass to the server, the one place with effects there, and what the ledger learns from each
//	memory.go   the list of all state that outlives a pass, with its ends, and the state of an owner
//	controller.go, client.go and kind.go contain what users of the package see.
//
// Some rules are in other packages. Package replicas decides how many children there should be: surge is in its
// rollout.go, and its type Room limits what a pass creates and deletes. This package only creates before it deletes
// (pass.go, carryOut). Package ledger remembers the results of API calls that the cache does not show yet, and requests
// that had no answer. Package slowstart limits how fast children are created. Package handlers decides which owners an
// event wakes.
//
// A new kind of child or owner needs a new Kind, and no change here. The same holds for a second kind of child of one
// owner, which gets a Kind and a Controller of its own, as above. One Controller for both would need a view, a ledger,
// a room and a Spec for each type of child, and one status for both.
//
// To write the status in another way, see Client.PatchStatus for the call and statusPatch in status.go for its body.
//
// The effect of a Conflict depends on the call. After one of a deletion, or of the mark that asks a child to leave, the
// pass sends no further batch (delete.go, holdChanged), and a later pass lists live before its next deletion (view.go,
// listsFirst). The status is written once more, to the owner as the server has it (status.go, writeStatus). An adoption
// or release is repeated when the child changes or its hold ends (claim.go, failedAdoptions and holdReleases), and until
// then no child is created in place of the orphan. A change waits for the newer version of its child, which brings a
// pass (update.go, concludeOne). A stray is read again by a later pass, and deleted if it is still one (delete.go,
// deletePendingStrays).
//
// If all caches reported their versions as numbers, this could go: in census (status.go), lookAtServer and
// awaitCache (view.go) the cases in which a version is missing, Newest here and in package handlers, and in package ledger
// Snapshot.Newest, suspicions, answer.cachedAs, the case of overlay.isShown that compares whole children, and what is
// done where two versions cannot be compared. If all clients were Versioners too, so could the branches for others in
// newTerm, lookAtServer, awaitCache and isOfTerm. The live list for each owner must stay, because the cache of a new
// process may stay behind (view.go, plan).
//
// Transcripts in testdata play many of the faults in these comments. Models are explored in every order of events
// (TestModel of package ledger, TestExplore of package replicastest), random stories and corners are played in
// internal/sim, and test/planted shows which of these nets notices which mistake.
