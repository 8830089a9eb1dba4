// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expectations remembers the creations and deletions that a controller has started and not
// yet seen in its cache. A controller that acts before its cache shows them creates or deletes too
// much.
//
// Check the owner's state before you list. Record creations and deletions before you call the API.
// Settle each of them when its event arrives:
//
//	var exp expectations.Store[expectations.Key]
//
//	if state, remaining := exp.State(key); state == expectations.Waiting {
//		return requeueAfter(remaining) // no event wakes the owner when it expires
//	}
//	pods := list()                                     // after State, never before
//	exp.Set(key, expectations.Changes{Creations: 3})   // then create three pods; the
//	                                                   // event handlers call exp.CreationObserved
//
// The caller decides which events belong to which owner, calls Lower for API calls that failed, and
// calls Forget for owners that no longer exist.
//
// A [Store] holds one record of creations and deletions for each owner. Creations are counted or
// identified by name, and deletions are counted or identified by UID. [ControllerExpectations] and
// [UIDTrackingControllerExpectations] are Stores with the method names of Kubernetes. Any
// comparable type can be the key of a record. The best choice is [Key], because a Key holds the
// owner's UID. If an owner is deleted and created again with the same name, the new owner then
// starts without a record. Use a separate Store for each controller, each kind of owner and each
// cluster.
//
// [ConsistencyStore] answers the same question with resource versions instead of events, and must
// know the resource version of the cache. You can use both together. [Writes] compares the resource
// version of an object with that of your last write to this object, and does not need the version
// of the cache.
//
// All types of this package are safe for concurrent use.
//
// Differs from Kubernetes (pkg/controller/controller_utils.go): the clock and the timeout can be
// set. Expired is a separate state. One call changes creations and deletions together. Deletions
// are identified by UID instead of by name. Creations can be identified by name, not only counted.
// Nothing is logged.
package expectations

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// DefaultTimeout is how long an owner waits for its creations and deletions before its record
// expires.
const DefaultTimeout = 5 * time.Minute

// A Key identifies one incarnation of an owner by name and UID. If an owner is deleted and created
// again with the same name, the new owner has another UID and therefore another record. In a work
// queue, use only the NamespacedName.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// KeyOf returns the key of an owner. If the owner is nil, KeyOf returns the zero Key.
func KeyOf(owner metav1.Object) Key {
	if object.IsNil(owner) {
		return Key{}
	}
	return Key{types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()}, owner.GetUID()}
}

// String returns "namespace/name (uid)".
func (k Key) String() string { return fmt.Sprintf("%s (%s)", k.NamespacedName, k.UID) }

// MarshalLog returns the namespace, name and UID for a structured logger.
func (k Key) MarshalLog() any {
	return struct {
		Name      string    `json:"name"`
		Namespace string    `json:"namespace,omitempty"`
		UID       types.UID `json:"uid"`
	}{k.Name, k.Namespace, k.UID}
}

// A State says whether an owner may act.
type State uint8

const (
	// Satisfied means that nothing is recorded for the owner, or that everything recorded was seen.
	Satisfied State = iota
	// Waiting means that a creation or deletion is outstanding, so the owner must not create or
	// delete anything yet.
	Waiting
	// Expired means that a creation or deletion has been outstanding for longer than the timeout.
	// An event was lost or is late, so the record can no longer be trusted. List from the API
	// server before you create or delete anything. The list still has the objects that are being
	// deleted. If you count those objects, keep waiting for the deletions that you expect.
	Expired
)

// String returns "satisfied", "waiting" or "expired".
func (s State) String() string {
	switch s {
	case Satisfied:
		return "satisfied"
	case Waiting:
		return "waiting"
	case Expired:
		return "expired"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Changes are creations and deletions that an owner starts. The zero value has none.
//
// The number of creations is Creations plus the number of names in Creating. For example,
// Changes{Creations: 2, Creating: []string{"web-0"}} means three creations. Deletions and Deleting
// are added in the same way. A negative number expects nothing and lowers the sum. Numbers are
// limited to the range from -math.MaxInt32 to math.MaxInt32. If a name or UID is listed twice, a
// Store counts it once. Empty names and UIDs are only counted, so Deleting: []types.UID{"", ""}
// means Deletions: 2.
type Changes struct {
	// Creations and Deletions are only counted. Any created object settles one creation, and any
	// deleted object settles one deletion.
	Creations, Deletions int
	// Creating holds the names of objects to create, if you choose the names before the call. You
	// may use any other strings if you call CreationObserved with the same strings.
	Creating []string
	// Deleting holds the UIDs of objects to delete. You may use any other strings if you call
	// DeletionObserved with the same strings.
	Deleting []types.UID
}

// Total returns the sum of counted creations and creations by name, and the sum of counted
// deletions and deletions by UID.
func (c Changes) Total() (creations, deletions int) {
	return c.Creations + len(c.Creating), c.Deletions + len(c.Deleting)
}

// Names returns the names of objects that you are about to create, for use as Changes.Creating. If
// the API server will choose the name of an object, the name in the result is empty, and the
// creation is only counted. Nil objects are skipped.
func Names[T metav1.Object](objs []T) []string {
	var names []string
	for _, obj := range objs {
		if !object.IsNil(obj) {
			names = append(names, obj.GetName())
		}
	}
	return names
}

// UIDs returns the UIDs of objects that you are about to delete, for use as Changes.Deleting. If an
// object has no UID, as with fake clients, "namespace/name" identifies the object. Nil objects are
// skipped.
func UIDs[T metav1.Object](objs []T) []types.UID {
	var uids []types.UID
	for _, obj := range objs {
		if !object.IsNil(obj) {
			uids = append(uids, object.ID(obj))
		}
	}
	return uids
}

// Pending holds the creations and deletions that one owner has started and not yet seen. The names
// and UIDs in a Pending are sorted. A Pending is a copy, so you may change it. A total is negative
// if Lower subtracted more than was expected.
type Pending struct {
	Changes
	// Since is when the record was made, or when Add was last called for it.
	Since time.Time
}
