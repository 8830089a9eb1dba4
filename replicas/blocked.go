// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import "time"

// A Blocked is the reason why a plan creates and deletes nothing. The zero Blocked means that the
// plan is not blocked.
type Blocked struct {
	Reason Reason `json:"reason"`
	// Until is the time at which the expectation expires. Make a new plan at this time or earlier.
	// Until is set only if Reason is ExpectationsPending.
	Until time.Time `json:"until,omitzero"`
}

// String returns the Reason and, if Until is set, also Until. The result for the zero Blocked is
// "".
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
	// ExpectationsPending means that earlier creations or deletions have not been observed yet.
	// Make a new plan when they have been observed, or when the expectation expires. No event
	// arrives when the expectation expires, so requeue the owner for the time Blocked.Until.
	ExpectationsPending Reason = "expectations are pending"
	// ViewIsStale means that the expectation has expired, so the cache may be stale. A stale view
	// blocks a plan that would create or delete something. It also blocks a plan after which the
	// number of children, including Spec.PendingAdoptions, would still differ from Spec.Replicas.
	// List the children from the API server instead of the cache. Then call Manage with that list
	// and with Spec.Pending set to expectations.Satisfied. If the list call fails, change nothing.
	//
	// Call expectations.SyncLive to correct the owner's record of expectations. The record then
	// contains only the changes that the cache does not show yet. If the record did not contain
	// these changes, the next plan would be made from the stale cache. Record the calls of the new
	// plan with expectations.Store.Add. Do not use Set, because Set would drop the changes that
	// SyncLive has kept.
	ViewIsStale Reason = "view is stale"
	// OwnerDeleted means that the owner has a deletionTimestamp and that Spec.Draining returns
	// false. The garbage collector decides what happens to the owner's children.
	OwnerDeleted Reason = "owner is being deleted"
	// Paused means that Spec.Paused is set.
	Paused Reason = "paused"
)
