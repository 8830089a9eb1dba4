// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ledger remembers facts about the children of one owner that a cache does not show yet. Plans
// are made from the cache and the ledger together:
//
//	what is believed = the cache + the ledger
//
// A cache shows a past state. A live list, the answer to a call, or an event may show a newer state. If a
// controller forgets the newer state, its next pass plans from the old cache again. The next pass may
// then create a child that already exists, or delete a child that should stay. So each pass notes the
// answers to its calls in the [Ledger], and plans from [Ledger.View] instead of the cache:
//
//	start := known.Start()                       // before the cache is read
//	snapshot.Version = cache.Version()           // before its children
//	snapshot.Children = cache.Children(owner)
//	view, err := known.View(start, snapshot, now)
//	...                                          // if view.Stale: list live, Listed, View
//	plan, err := replicas.Manage(view.Children, spec)
//	...                                          // the calls: Sending, Created, Deleted, Told, Gone, Doubt
//	known.Done()
//
// # Facts
//
// Each answer from the server says that a child exists in some version, or that the child does not exist.
// The ledger joins the answers about one child. Answers may arrive in any order, and the same answer may
// arrive twice. The observation that began last counts, so the calls about one child must not overlap. A
// child that is gone stays gone, because the server never uses its UID again.
//
// The ledger drops a fact as soon as the cache shows the same. If the cache does not show a fact within
// [Ledger.Patience], the child may have changed since then, and the fact proves nothing. The view is then
// stale, and the children must be listed live before any child is created or deleted.
//
// # Waiting
//
// A Kubernetes controller creates and deletes nothing until its cache shows all of its own creations and
// deletions. To wait in the same way, note creations with [Ledger.Created] and deletions with
// [Ledger.Deleted]. [View.Waits] then says how long to wait. Other facts need no wait, because the view
// already includes them.
//
// # Requests without an answer
//
// A request without an answer may take effect up to [Landing] after it was sent. The ledger keeps the
// names of unanswered creations and the UIDs of unanswered deletions until a fact settles them. Pass the
// result of [Ledger.InFlight] to the plan. The plan then sends these requests again before any others.
// The plan also leaves room for requests that are not sent again, because they may still succeed.
//
// # Restores
//
// Facts may become wrong when the server is restored from a backup. After a restore, the server uses some
// versions a second time, and children that were gone may exist again. A Ledger does not notice a
// restore. After a restore, make a new Ledger and fill the caches again.
//
// This package calls no clock, no server and no logger, and starts no goroutine.
package ledger
