// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps what is known of the children of one owner beyond what a cache
// shows:
//
//	what is believed = the cache + the ledger
//
// A cache shows the past. A live list, the answer to a call, or an event may show more.
// If that is forgotten, the next pass plans from the old cache once more: it creates a
// child that is there already, or deletes one of those that are left. So a pass tells
// the [Ledger] what its calls have shown, and plans from [Ledger.View] instead of the
// cache:
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
// The server says of a child that it is there, in a version, or that it is not. What was
// said of one child is joined: the order in which answers arrive does not matter, and
// neither does it matter if one arrives twice. The observation that began last counts. So
// the calls about one child must not overlap. A child that does not exist any more stays so,
// because its UID does not come back.
//
// A fact is dropped as soon as the cache shows it. A fact that the cache does not show
// for [Ledger.Patience] proves nothing any more, because nobody knows what happened
// since. Then the view is old, and the children must be listed live before anything is
// created or deleted.
//
// # Waiting
//
// Kubernetes does nothing until its cache shows what it has created and deleted itself. Note such
// calls with [Ledger.Created] and [Ledger.Deleted] to do the same: [View.Waits] says how long to
// wait. Other facts are not waited for, because the view has them.
//
// # Requests without an answer
//
// A request that had no answer may take effect up to [Landing] after it was sent. The
// ledger keeps the names of such creations and the UIDs of such deletions until a fact
// settles them. Plan with [Ledger.InFlight]: they are sent again before others, and hold
// their places.
//
// # Restores
//
// Facts hold as long as the server does not go back to a backup. Versions would be given
// twice then, and UIDs that were gone would exist once more. A Ledger does not notice that.
// Make a new Ledger, and fill the caches anew.
//
// This package calls no clock, no server and no logger, and starts no goroutine.
package ledger
