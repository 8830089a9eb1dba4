// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ledger remembers facts about the children of one owner until the cache shows these facts. Plans
// are made from the cache and the ledger together:
//
//	what is believed = the cache + the ledger
//
// A cache shows a past state of the cluster, while a live list, the answer to a call, or an event may have
// shown a newer one. A controller that forgets the newer state makes its next plan from the old one, and may
// create a child that already exists, or delete a child that should stay. So each pass records the answers to
// its calls in the [Ledger], and makes its plan from the result of [Ledger.View] instead of from the cache:
//
//	start := known.Start()                       // before the cache is read
//	snapshot.Version = cache.Version()           // before its children
//	snapshot.Children = cache.Children(owner)
//	view, err := known.View(start, snapshot, now)
//	...                                          // if view.Stale: list live, Listed, View
//	plan, err := replicas.Manage(view.Children, spec)
//	...                                          // the calls: CreateSent, Created, Deleted, CallUnanswered
//	...                                          // what they show: Observe, ObserveDeleted
//	known.Done()
//
// # Facts
//
// Each answer from the server says either that a child exists in a certain version, or that it does not exist.
// The ledger combines all answers about one child into a fact. They may be recorded in any order, and more
// than once. Where two answers differ, the one to the call that began last counts, so calls about the same
// child must not overlap. A child that is gone never exists again, because the server does not use a UID twice.
//
// The ledger drops a fact as soon as the cache shows it. A fact that the cache does not show for the time
// [Ledger.Patience] may be outdated, because the child may have changed meanwhile. The view is then stale, and
// the children must be listed live before any child is created or deleted.
//
// # Waiting
//
// A Kubernetes controller creates and deletes nothing until its cache shows all of the controller's earlier
// creations and deletions. For a controller that should also wait for its cache, record creations with
// [Ledger.Created] and deletions with [Ledger.Deleted], and [View.Waits] is the time to wait. Other facts
// require no waiting, because the view already includes them.
//
// # Requests without an answer
//
// A request that got no answer may still take effect for the time [MaxRequestAge] after it was sent. The
// ledger keeps the names of such creations and the UIDs of such deletions until their outcome is known. Copy
// the result of [Ledger.InFlight] into the Facts of the replicas.Spec. The plan then repeats these requests before it makes
// any others, and takes into account those that it does not repeat, because they may still succeed.
//
// # Restores
//
// Facts may become wrong when the server is restored from a backup, because it then uses some
// resourceVersions a second time, and deleted children may exist again. A Ledger cannot detect a restore.
// After one, create a new Ledger and fill the caches again.
//
// This package does not read the clock, call a server, write logs or start goroutines.
package ledger
