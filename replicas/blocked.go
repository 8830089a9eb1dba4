// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import "time"

// Blocked says why a plan creates, changes and deletes nothing. The zero value means that the plan
// is not blocked.
type Blocked struct {
	Reason BlockedReason `json:"reason"`
	// Until holds the time when the expectation expires, if Reason is ExpectationsPending. Make a
	// new plan at this time or earlier. With any other Reason, this field is zero.
	Until time.Time `json:"until,omitzero"`
}

// String returns the reason, followed by the time in Until if this field is set. For the zero
// value, the result is "".
func (b Blocked) String() string {
	if b.Until.IsZero() {
		return string(b.Reason)
	}
	return string(b.Reason) + " until " + b.Until.UTC().Format(time.RFC3339)
}

// A BlockedReason says why a plan creates, changes and deletes nothing.
type BlockedReason string

// The reasons of Plan.Blocked.
const (
	// ExpectationsPending means that the owner has an expectation, and that some of the expected
	// creations or deletions have not been observed yet. Make a new plan when all expected
	// creations and deletions have been observed, or when the expectation expires. The expiry
	// causes no event, so requeue the owner for the time in Blocked.Until.
	ExpectationsPending BlockedReason = "expectations are pending"
	// ViewIsStale means that the expectation has expired, so the cache may be stale. A stale view
	// blocks every plan that would create, delete or discard a child, and every plan whose children
	// need a change. If the owner has the wrong number of children, a stale view also blocks a plan
	// without creations, deletions and discards. To get the number of children, add the active
	// children, the orphans in Claims.Adopt, and the number in Facts.Undecided. The number of children
	// is wrong if it differs from Spec.Replicas. List the children from the API server instead of the
	// cache. Then call Manage with the children from the API server, and set Facts.Pending to
	// expectations.Satisfied. If the list call fails, change nothing.
	//
	// Call expectations.SyncLive to correct the owner's record of expectations. The record then
	// contains only the changes that the cache does not show yet. While the record contains a
	// change, the next plan is not made from the stale cache. Use expectations.Store.Add to record
	// the calls of the new plan. Do not use the method Set, because it would drop the changes that
	// SyncLive has kept.
	ViewIsStale BlockedReason = "view is stale"
	// OwnerDeleted means that the owner has a deletionTimestamp and that Spec.Draining returns
	// false. The garbage collector decides what happens to the owner's children.
	OwnerDeleted BlockedReason = "owner is being deleted"
	// Paused means that Spec.Paused is set, and that the owner is not being deleted.
	Paused BlockedReason = "paused"
)
