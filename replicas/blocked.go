// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import "time"

// A Blocked says why a plan creates and deletes nothing. The zero Blocked means that nothing blocks
// the plan.
type Blocked struct {
	Reason Reason `json:"reason"`
	// Until is when the expectation expires, if the Reason is ExpectationsPending. Plan again then,
	// if not before. For any other Reason it is zero.
	Until time.Time `json:"until,omitzero"`
}

// String returns the reason and, if Until is set, the instant. It returns "" for
// the zero Blocked.
func (b Blocked) String() string {
	if b.Until.IsZero() {
		return string(b.Reason)
	}
	return string(b.Reason) + " until " + b.Until.UTC().Format(time.RFC3339)
}

// A Reason says why a plan creates and deletes nothing.
type Reason string

// The reasons of Plan.Blocked.
const (
	// ExpectationsPending means that earlier creations or deletions have not been observed. Plan
	// again when they are, or at Blocked.Until, when the expectation expires. No event wakes the
	// owner then.
	ExpectationsPending Reason = "expectations are pending"
	// ViewIsStale means that the expectation has expired, so the list may be stale, and the plan
	// would create or delete something. List the children from the API server instead of a cache.
	// Then call Manage again with that list and Pending Satisfied. If the list fails, change
	// nothing. Settle the record with expectations.SyncLive, which keeps what the cache does not
	// show yet. If you forget the record instead, the next plan is made from the old cache. Then
	// record what you start with Add, not with Set.
	ViewIsStale Reason = "view is stale"
	// OwnerDeleted means that the owner has a deletionTimestamp. The garbage
	// collector decides what happens to its children.
	OwnerDeleted Reason = "owner is being deleted"
	// Paused means that Spec.Paused is set.
	Paused Reason = "paused"
)
