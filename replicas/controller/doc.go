// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller carries out the decisions of package replicas. A Controller maintains the desired
// number of children for every owner of one kind on one API server. It works with any client. A Kind
// describes a kind of owner. The functions ReplicaSets and ReplicationControllers return ready-made Kinds,
// and you can write a Kind for your own types.
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	...
//	pods.AddEventHandler(...)         // c.ChildAdded, c.ChildUpdated, c.ChildDeleted
//	replicaSets.AddEventHandler(...)  // c.OwnerAdded, c.OwnerUpdated, c.OwnerDeleted
//	...
//	requeueAfter, err := c.Sync(ctx, key) // what a worker does with a key of the queue
//
// The caller provides the client, the caches with their watches, and the work queue with its workers. The
// modules replicas/clientgo and replicas/controllerruntime provide all of these. Two Controllers must not
// work for the same owner at the same time. A Controller uses one API server, so make one Controller for
// each cluster.
//
// The Controller never creates or deletes children on the basis of a view that is known to be old. A lost
// response never leads to an extra child. See Controller.Sync.
//
// # Two types of children
//
// If an owner has two types of children, such as pods and Services, write two Kinds and make a Controller of
// each. Each Kind has its own children, its own limits and its own Spec.Finalizer, so the owner can stay until
// the last child of both types is gone. The Status of each Kind must set only its own part of the owner's
// status, for example one condition, and never the whole status. Only one of them should set
// observedGeneration, because its readers take the whole status to be up to date then. The other one can set
// the ObservedGeneration of its condition. If a Kind has nothing to report, its Status is nil.
//
// A status write carries the resourceVersion of the owner, so neither Controller can undo what the other has
// written. If the cache does not show the other's last write yet, the write is a Conflict, and the Controller
// reads the owner and writes again. A write of one therefore costs the other a pass, because the owner has
// changed, and at most one Conflict and one read. In the adapters replicas/clientgo and
// replicas/controllerruntime, the second Kind needs Options.Name.
package controller

// The files of the package, for those who work on it:
//
//	pass.go     the steps of a pass, and the type Pass, which says what a pass did
//	owner.go    the owner that the pass uses, and whether the owner on the server makes the same plan
//	view.go     the children on which a plan is based, from the cache or a live list, and the slots
//	claim.go    adoptions and releases, and which new children are the owner's
//	scale.go    the part of a plan that is carried out: holds, Kind.Prepare, the room, pods that fail
//	update.go   changes in place, their holds, and children that must be replaced because theirs was refused
//	create.go   creations, and holds after their failures
//	delete.go   deletions, what a Conflict means for them, and children that a webhook took from the owner
//	lost.go     calls without an answer, of this pass and of earlier ones, and how the pass finds their results
//	status.go   the counts of the children, and the status write
//	gates.go    the table of reasons to hold something back, with their delays
//	ask.go      all calls to the server, in the order of a pass, and what the ledger learns from each
//	memory.go   the state of an owner that outlives a pass
//	controller.go, client.go and kind.go contain what users of the package see.
//
// Some rules are in other packages. Package replicas decides how many children there should be, and its
// type Room limits the creations and deletions of a pass. Package ledger records the results of API calls
// that the cache does not show yet. It also keeps track of requests that had no answer. Package slowstart
// limits how fast children are created. Package handlers decides which owners an event wakes. A new kind of
// child or owner requires a new Kind, but no change in this package.
//
// The effect of a Conflict depends on the call. If a deletion fails with a Conflict, the pass sends no
// further deletions, and the next pass plans from a live list (delete.go, holdChanged). If a status write
// fails with a Conflict, the pass reads the owner from the server and writes the status again (status.go,
// writeStatus). If a claim fails with a Conflict, a later pass repeats the claim (claim.go, failedAdoptions and
// holdReleases). If a change fails with a Conflict, the next version of the child brings a pass (update.go,
// concludeOne). If the deletion of a stray fails with a Conflict, a later pass reads the stray again, and deletes
// it if it is still a stray (delete.go, deletePendingStrays).
//
// The type reconciler holds the state that outlives a pass and does not belong to one owner. This state
// includes the live lists under way, the term, the proofs of a restore and the gates that stand. When the
// process ends, this state is lost.
//
// Some code is necessary only for caches that do not return their version, or for clients that are not
// Versioners. In this package, an example is the case for caches without a version in the method count in
// status.go. In package ledger, examples are Snapshot.Newest, Ledger.passed and answer.cachedAs. If the cache
// of a new process stays behind, the live list for each owner is necessary even if all versions are known
// (view.go, plan).
