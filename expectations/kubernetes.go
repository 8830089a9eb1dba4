// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import "k8s.io/apimachinery/pkg/types"

// ControllerExpectations is a [Store] under the names that Kubernetes uses, for those who port a
// controller. Creations and deletions are only counted. The zero value is ready to use. The methods
// of its Store work on the same records.
type ControllerExpectations[K comparable] struct{ Store[K] }

// SetExpectations records how many creations and deletions an owner expects from now on. It
// replaces what was recorded for the owner, and its time. Negative and zero counts are legal, and
// are fulfilled at once.
func (e *ControllerExpectations[K]) SetExpectations(key K, adds, dels int) {
	e.Set(key, Changes{Creations: adds, Deletions: dels})
}

// ExpectCreations is SetExpectations(key, adds, 0). Outstanding deletions are forgotten.
func (e *ControllerExpectations[K]) ExpectCreations(key K, adds int) { e.SetExpectations(key, adds, 0) }

// ExpectDeletions is SetExpectations(key, 0, dels). Outstanding creations are forgotten.
func (e *ControllerExpectations[K]) ExpectDeletions(key K, dels int) { e.SetExpectations(key, 0, dels) }

// CreationObserved is LowerExpectations(key, 1, 0).
func (e *ControllerExpectations[K]) CreationObserved(key K) { e.LowerExpectations(key, 1, 0) }

// DeletionObserved is LowerExpectations(key, 0, 1).
func (e *ControllerExpectations[K]) DeletionObserved(key K) { e.LowerExpectations(key, 0, 1) }

// RaiseExpectations adds to both counts at once. It does nothing for an owner
// without a record, and the time of the record stays.
func (e *ControllerExpectations[K]) RaiseExpectations(key K, adds, dels int) {
	e.LowerExpectations(key, -int(bounded(adds)), -int(bounded(dels)))
}

// LowerExpectations subtracts from both counts at once. They may become negative. It does nothing
// for an owner without a record, and the time of the record stays.
func (e *ControllerExpectations[K]) LowerExpectations(key K, adds, dels int) {
	e.Lower(key, Changes{Creations: adds, Deletions: dels})
}

// GetExpectations returns both counts as they are at one instant, even if they
// have expired, and whether there is a record at all.
func (e *ControllerExpectations[K]) GetExpectations(key K) (adds, dels int, ok bool) {
	pending, ok := e.Get(key)
	adds, dels = pending.Total()
	return adds, dels, ok
}

// SatisfiedExpectations reports whether the state of an owner is Satisfied or
// Expired, as in Kubernetes.
func (e *ControllerExpectations[K]) SatisfiedExpectations(key K) bool {
	state, _ := e.State(key)
	return state != Waiting
}

// DeleteExpectations forgets an owner. It does nothing if there is no record.
func (e *ControllerExpectations[K]) DeleteExpectations(key K) { e.Forget(key) }

// UIDTrackingControllerExpectations is ControllerExpectations with deletions by
// UID. The zero value is ready to use.
//
// Differs from Kubernetes: deletions are known by UID and not by name, so a pod
// that is created again with the same name is another pod. ExpectCreations clears
// UIDs that are left from an earlier deletion, so a late event for one of them
// changes nothing. Deletions that were only counted, by SetExpectations or
// RaiseExpectations, are settled by any UID.
type UIDTrackingControllerExpectations[K comparable] struct{ ControllerExpectations[K] }

// ExpectDeletions records that an owner expects the deletions of these UIDs. It
// replaces what was recorded for the owner. A UID that is given twice counts
// once. If there are no UIDs, the owner is Satisfied. The slice is not kept.
func (e *UIDTrackingControllerExpectations[K]) ExpectDeletions(key K, uids []types.UID) {
	e.Set(key, Changes{Deleting: uids})
}

// DeletionObserved settles the deletion of a UID, and reports whether the owner
// expected it. If it is called several times for one expected UID, even at the
// same time, exactly one call returns true and lowers the count.
func (e *UIDTrackingControllerExpectations[K]) DeletionObserved(key K, uid types.UID) bool {
	return e.Store.DeletionObserved(key, uid)
}
