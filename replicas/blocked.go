// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import "time"

// A Blocked says why a plan creates and deletes nothing. The zero Blocked means that nothing blocks
// the plan.
type Blocked struct {
	Reason Reason `json:"reason"`
	// Until is the time at which the expectation expires, if Reason is ExpectationsPending. Plan
	// again at Until at the latest. For any other Reason, Until is zero.
	Until time.Time `json:"until,omitzero"`
}

// String returns the Reason, followed by Until if Until is set. It returns "" for the zero Blocked.
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
	// again when they have been observed, or at Blocked.Until, when the expectation expires. No
	// event arrives at Blocked.Until, so requeue the owner for that time.
	ExpectationsPending Reason = "expectations are pending"
	// ViewIsStale means that the expectation has expired, so the cache may be stale. The plan is
	// blocked if it would create or delete something, or would leave more or fewer children than
	// Spec.Replicas. List the children from the API server instead of a cache. Then call Manage
	// with that list and with Spec.Pending set to expectations.Satisfied. If the list call fails,
	// change nothing.
	//
	// Use expectations.SyncLive to settle the owner's record of expectations. SyncLive keeps those
	// changes in the record that the cache does not show yet. Without that record, the next plan
	// would be made from the stale cache. Record the calls of the new plan with
	// expectations.Store.Add. A call of Set would drop the changes that SyncLive has kept.
	ViewIsStale Reason = "view is stale"
	// OwnerDeleted means that the owner has a deletionTimestamp and that Spec.Finalizer does not
	// keep the owner. The garbage collector decides what happens to the owner's children.
	OwnerDeleted Reason = "owner is being deleted"
	// Paused means that Spec.Paused is set.
	Paused Reason = "paused"
)
