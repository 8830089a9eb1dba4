// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller carries out what package replicas decides: it keeps the
// children of all owners of one kind, on one API server, over any client. A Kind
// says how kinds of owners differ; ReplicaSets and ReplicationControllers are ready
// made, and you can write a Kind for types of your own.
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	...
//	pods.AddEventHandler(...)         // c.ChildAdded, c.ChildUpdated, c.ChildDeleted
//	replicaSets.AddEventHandler(...)  // c.OwnerAdded, c.OwnerUpdated, c.OwnerDeleted
//	...
//	requeueAfter, err := c.Sync(ctx, key) // what a worker does with a key of the queue
//
// The caller brings the client, the caches with their watches, and the work queue
// with its workers. The modules replicas/clientgo and replicas/controllerruntime
// have all of these. An owner must not have two Controllers at the same time. A
// Controller works on one API server. For two clusters, make two Controllers.
//
// Nothing is created or deleted on a view that is known to be old, and a lost
// answer does not lead to one child too many. See Controller.Sync.
package controller

// Where things are, for those who work on the package:
//
//	pass.go     one pass on one page, and Pass, which says what it did
//	owner.go    which owner the pass uses, and whether the server's still wants the same
//	view.go     which children there are: the cache, live lists, the first look of a process; slots
//	claim.go    adopt and release
//	scale.go    what is left of a plan: holds, the author's step, the room, pods that fail
//	lost.go     calls of earlier passes without an answer: what became of them
//	create.go   creations; what a failure holds; children that a webhook made useless
//	delete.go   deletions, and what a Conflict means for them
//	status.go   the counts, and the write
//	gates.go    each reason to hold something back, with its times, in one table
//	ask.go      all calls to the server, what the ledger learns from each, live lists, restores
//	memory.go   all that outlives a pass of one owner
//	events.go   what events wake, and what they end
//	metrics.go, controller.go, client.go and kind.go have what users see.
//
// Three rules are elsewhere. Package replicas decides how many children there should be. Room in that
// package limits the creations and deletions of a pass. Package ledger says what is believed, and ends
// each request without an answer. Package slowstart sets the pace. Another kind of child or owner is
// another Kind, and needs no code here. Two kinds of children of one owner would need a Kind with two,
// because two Controllers would fight about the owner's status.
//
// A Conflict has a different meaning for each call. A deletion is decided again, on a live list
// (delete.go, again). A status is written again, on the owner as it is read then (status.go,
// writeStatus). A later pass tries a claim again (claim.go, undecidedAdoptions and failedReleases). A
// stray is read, and deleted again if it still is one (create.go, deleteStray).
//
// The type reconciler keeps what belongs to no owner and outlives a pass. It has the writes that the
// cache does not show yet (writes), failed live lists (lists), the term, proofs of a restore, the newest
// event, parsed specs and the counts of metrics. All of it ends with the process.
//
// If all caches gave their version, and all clients were Versioners, some code could go. That is the
// second half of count in status.go, the type newest in events.go with ledger.Snapshot.Newest, and in
// package ledger Ledger.passed and word.cachedAs. The list for each owner of a new process (view.go,
// plan) would remain for caches that are late.
