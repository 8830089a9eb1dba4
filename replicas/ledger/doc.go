// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ledger remembers what is known of the children of one owner beyond what a cache shows:
//
//	what is believed = the cache + the ledger
//
// A cache shows the past. A live list, the answer to a call, or an event may show more. If a
// controller forgets this, its next pass plans from the old cache again. It then creates a child
// that already exists, or deletes one of those that are left. So a pass notes in the [Ledger] what
// its calls have shown, and plans from [Ledger.View] instead of the cache:
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
// The server says that a child exists in some version, or that it does not exist. The ledger joins
// the answers about one child, so they may arrive in any order, and one may arrive twice. The
// observation that began last counts, so the calls about one child must not overlap. A child that
// is gone stays gone, because its UID is never used again.
//
// The ledger drops a fact as soon as the cache shows it. If the cache does not show a fact for
// [Ledger.Patience], the fact no longer proves anything, because the child may have changed since.
// The view is then old, and the children must be listed live before anything is created or deleted.
//
// # Waiting
//
// Kubernetes does nothing until its cache shows what it has created and deleted itself. To do the
// same, note such calls with [Ledger.Created] and [Ledger.Deleted]. [View.Waits] then says how long
// to wait. Other facts need no wait, because the view has them.
//
// # Requests without an answer
//
// A request without an answer may take effect up to [Landing] after it was sent. The ledger keeps
// the names of such creations and the UIDs of such deletions until a fact settles them. Plan with
// [Ledger.InFlight]. The plan then sends these requests again before others. It also allows for
// those that it does not send to succeed later.
//
// # Restores
//
// Facts are true until the server is restored from a backup. The server then gives versions a second
// time, and UIDs that were gone exist again. A Ledger does not notice a restore. Make a new Ledger,
// and fill the caches anew.
//
// This package calls no clock, no server and no logger, and starts no goroutine.
package ledger
