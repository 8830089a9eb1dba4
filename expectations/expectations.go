// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expectations keeps track of the creations and deletions that a controller has started but
// not yet seen in its cache. If a controller acts before its cache shows these changes, it creates
// or deletes too many objects.
//
// Check the state of the owner before you list its objects. Record creations and deletions before
// you make the API calls. When a watch event shows a creation or deletion, call CreationObserved or
// DeletionObserved:
//
//	var exp expectations.Store[expectations.Key]
//
//	if state, remaining := exp.State(key); state == expectations.Waiting {
//		return requeueAfter(remaining) // no event wakes the owner when its record expires
//	}
//	pods := list()                                     // after State, never before
//	exp.Set(key, expectations.Changes{Creations: 3})   // then create three pods; the
//	                                                   // event handlers call exp.CreationObserved
//
// The caller decides which events belong to which owner. Call Lower for API calls that failed, and
// call Forget for owners that no longer exist.
//
// A [Store] holds one record of creations and deletions for each owner. Creations can be counted or
// identified by name. Deletions can be counted or identified by UID. [ControllerExpectations] and
// [UIDTrackingControllerExpectations] are Stores with the method names of Kubernetes. The key of a
// record can have any comparable type. [Key] is the best choice, because a Key contains the UID of
// the owner. If an owner is deleted and created again with the same name, the new owner then starts
// without a record. Use a separate Store for each controller, each kind of owner and each cluster.
//
// [ConsistencyStore] serves the same purpose, but uses resource versions instead of events. A
// ConsistencyStore must know the resource version that the cache has reached. You can use a Store
// and a ConsistencyStore together. The type [Writes] compares the resource version of a cached
// object with the resource version of your last write to this object. The type Writes does not need
// the version of the cache.
//
// All types of this package are safe for concurrent use.
//
// Differs from Kubernetes (pkg/controller/controller_utils.go): the clock and the timeout can be
// set. Expired is a separate state. The expected creations and deletions of an owner change in one
// atomic step. Deletions are identified by UID instead of by name. Creations can be counted, as in
// Kubernetes, or identified by name. Nothing is logged.
package expectations

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// DefaultTimeout is used if the field Timeout of a Store or of a Writes is 0 or less.
const DefaultTimeout = 5 * time.Minute

// A Key identifies one incarnation of an owner by name and UID. If an owner is deleted and created
// again with the same name, the new owner has another UID and therefore another record. In a work
// queue, use only the NamespacedName as the key.
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

// A State says whether an owner may create and delete objects.
type State uint8

const (
	// Satisfied means that no creation or deletion is outstanding, so the owner may act.
	Satisfied State = iota
	// Waiting means that a creation or deletion is outstanding, so the owner must not create or
	// delete anything yet.
	Waiting
	// Expired means that a creation or deletion has been outstanding for longer than the timeout.
	// An event was lost or is late, so the record is no longer reliable. List from the API server
	// before you create or delete anything. The list still contains the objects that are being
	// deleted. If you count an object that is being deleted as a replica, continue to expect the
	// deletion of this object.
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

// Changes holds the creations and deletions that an owner starts. The zero value contains no
// changes.
//
// The number of creations is the field Creations plus the number of names in the field Creating.
// For example, Changes{Creations: 2, Creating: []string{"web-0"}} means three creations. The fields
// Deletions and Deleting are added in the same way. The fields Creations and Deletions may be
// negative. A negative value lowers the sum. Both fields are limited to the range from
// -math.MaxInt32 to math.MaxInt32. If a name or UID is listed twice, a Store counts it once. An
// empty name or UID is only counted, so Deleting: []types.UID{"", ""} has the same effect as
// Deletions: 2.
type Changes struct {
	// Creations and Deletions are the numbers of changes that are not identified by name or UID.
	// Any created object can be one of the Creations, and any deleted object can be one of the
	// Deletions.
	Creations, Deletions int
	// Creating holds the names of the objects to create, if the names are known before the API
	// call. You may use other strings instead of names if you call CreationObserved with the same
	// strings.
	Creating []string
	// Deleting holds the UIDs of the objects to delete. You may use other strings instead of UIDs
	// if you call DeletionObserved with the same strings.
	Deleting []types.UID
}

// Total returns the number of creations and the number of deletions. Both numbers include the
// changes that are only counted and the changes that are identified by name or UID.
func (c Changes) Total() (creations, deletions int) {
	return c.Creations + len(c.Creating), c.Deletions + len(c.Deleting)
}

// Names returns the names of objects that you are about to create, for use as Changes.Creating. If
// an object has no name yet, for example with generateName, the result contains an empty string,
// and the creation is only counted. Nil objects are skipped.
func Names[T metav1.Object](objs []T) []string {
	var names []string
	for _, obj := range objs {
		if !object.IsNil(obj) {
			names = append(names, obj.GetName())
		}
	}
	return names
}

// UIDs returns the UIDs of objects that you are about to delete, for use as Changes.Deleting. An
// object without a UID, for example from a fake client, is identified by "namespace/name". Nil
// objects are skipped.
func UIDs[T metav1.Object](objs []T) []types.UID {
	var uids []types.UID
	for _, obj := range objs {
		if !object.IsNil(obj) {
			uids = append(uids, object.ID(obj))
		}
	}
	return uids
}

// Pending holds the creations and deletions that one owner has started but not yet seen. The lists
// of names and UIDs are sorted. A Pending is a copy, so you may change it. A total is negative if
// Lower has subtracted more changes than were expected.
type Pending struct {
	Changes
	// Since is the time at which the current timeout of the record started.
	Since time.Time
}
