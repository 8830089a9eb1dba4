// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import "k8s.io/apimachinery/pkg/types"

// ControllerExpectations is a [Store] with the method names of Kubernetes. You can use it instead
// of the type with the same name in Kubernetes' pkg/controller. Creations and deletions are
// counted, and not identified by name or UID. The zero value is ready to use. You can also call the
// methods of the embedded Store, which holds the records.
type ControllerExpectations[K comparable] struct{ Store[K] }

// SetExpectations records the number of creations and deletions that an owner expects. The new
// record replaces the owner's earlier record, and the timeout starts again. A count of zero or less
// is valid and is fulfilled immediately.
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

// RaiseExpectations adds to both counts in one step. The timeout of the record does not start
// again. If the owner has no record, RaiseExpectations does nothing.
func (e *ControllerExpectations[K]) RaiseExpectations(key K, adds, dels int) {
	e.LowerExpectations(key, -int(bounded(adds)), -int(bounded(dels)))
}

// LowerExpectations subtracts from both counts in one step. The counts may become negative. The
// timeout of the record does not start again. If the owner has no record, LowerExpectations does
// nothing.
func (e *ControllerExpectations[K]) LowerExpectations(key K, adds, dels int) {
	e.Lower(key, Changes{Creations: adds, Deletions: dels})
}

// GetExpectations returns a consistent snapshot of both counts, even if the record has expired. If
// the owner has no record, ok is false.
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

// DeleteExpectations drops the record of an owner, if it exists.
func (e *ControllerExpectations[K]) DeleteExpectations(key K) { e.Forget(key) }

// UIDTrackingControllerExpectations is a ControllerExpectations that identifies deletions by UID.
// The zero value is ready to use.
//
// Differs from Kubernetes: deletions are identified by UID and not by name. A pod that is created
// again with the same name therefore counts as a different pod. If UIDs remain from an earlier
// ExpectDeletions, ExpectCreations clears them. A late event for one of these UIDs then has no
// effect. SetExpectations and RaiseExpectations count deletions without their UIDs, so
// DeletionObserved accepts any UID for these deletions.
type UIDTrackingControllerExpectations[K comparable] struct{ ControllerExpectations[K] }

// ExpectDeletions records that an owner expects the deletion of the objects with these UIDs. The
// new record replaces the owner's earlier record. A UID that is listed twice counts once. If the
// list uids is empty, the owner is Satisfied. ExpectDeletions does not keep the slice.
func (e *UIDTrackingControllerExpectations[K]) ExpectDeletions(key K, uids []types.UID) {
	e.Set(key, Changes{Deleting: uids})
}

// DeletionObserved records that the deletion of the object with this UID was seen, and reports
// whether the owner expected the deletion. If several calls pass the same expected UID, exactly one
// of them returns true and lowers the count. The calls may be concurrent.
func (e *UIDTrackingControllerExpectations[K]) DeletionObserved(key K, uid types.UID) bool {
	return e.Store.DeletionObserved(key, uid)
}
