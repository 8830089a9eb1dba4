// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expectations remembers the objects that a controller has created or deleted and not yet
// seen in its cache. A controller that acts before it has seen them creates or deletes too much.
//
// Ask for the state before you list, record before you call the API, and settle as the events
// arrive:
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
// The caller decides which events belong to which owner, lowers what failed, and forgets an owner
// that is gone.
//
// A [Store] holds one record for each owner. It has creations and deletions, each by number, by
// name or by UID. [ControllerExpectations] and [UIDTrackingControllerExpectations] do the same
// under the names that Kubernetes uses. Any comparable type can be the key of a record. Choose
// [Key], because it holds the owner's UID. An owner that was deleted and created again with the
// same name then starts without a record. Use one store for each controller, kind of owner and
// cluster.
//
// [ConsistencyStore] answers the same question from resource versions instead of events, and needs
// the version of the cache. The two complement each other. [Writes] compares one object with your
// last write to it, and needs no other version.
//
// Everything here is safe for concurrent use.
//
// Differs from Kubernetes (pkg/controller/controller_utils.go): the clock and the timeout can be
// set; Expired is a state of its own; one call changes creations and deletions together; deletions
// are known by UID instead of by name; creations can be known by name instead of only being
// counted; and nothing is logged.
package expectations

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// DefaultTimeout is how long an owner waits for what it expects before its
// record expires.
const DefaultTimeout = 5 * time.Minute

// A Key names one incarnation of an owner. An owner that was deleted and created again with the
// same name has another UID, and so another record. In a work queue, use the NamespacedName alone.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// KeyOf returns the key of an owner, and the zero Key for a nil one.
func KeyOf(owner metav1.Object) Key {
	if object.IsNil(owner) {
		return Key{}
	}
	return Key{types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()}, owner.GetUID()}
}

// String returns "namespace/name (uid)".
func (k Key) String() string { return fmt.Sprintf("%s (%s)", k.NamespacedName, k.UID) }

// MarshalLog returns what a structured logger prints: namespace, name and UID.
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
	// Satisfied means that nothing is recorded for the owner, or all of it was seen.
	Satisfied State = iota
	// Waiting means that something is outstanding, so the owner must not create or delete.
	Waiting
	// Expired means that something has been outstanding for longer than the timeout. An event was
	// lost or is late, so the record can no longer be trusted. List live before you create or
	// delete anything. A list still has the objects that are being deleted. If you count those
	// objects, keep waiting for the deletions that you expect.
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

// Changes are creations and deletions that an owner started. The zero value is none.
//
// Numbers and names add up. For example, Changes{Creations: 2, Creating: []string{"web-0"}} are
// three creations. A negative number expects nothing, and lowers the sum. Numbers are kept between
// -math.MaxInt32 and math.MaxInt32. A name or UID that is given twice counts once. Empty names and
// UIDs are only counted, so Deleting: []types.UID{"", ""} means Deletions: 2.
type Changes struct {
	// Creations and Deletions are only counted. Any object that was created settles one creation,
	// and any object that was deleted settles one deletion.
	Creations, Deletions int
	// Creating are the names of objects to create, if you choose them before the
	// call. Any other string works too, if CreationObserved is called with the same
	// string.
	Creating []string
	// Deleting are the UIDs of objects to delete. Any other string works too, if
	// DeletionObserved is called with the same string.
	Deleting []types.UID
}

// Total returns how many creations and deletions these are, counted or known by
// name or UID.
func (c Changes) Total() (creations, deletions int) {
	return c.Creations + len(c.Creating), c.Deletions + len(c.Deleting)
}

// Names returns the names of objects that are about to be created, for
// Changes.Creating. If the API server chooses the name of an object, the name is
// empty here, so its creation is only counted. Nil objects are skipped.
func Names[T metav1.Object](objs []T) []string {
	var names []string
	for _, obj := range objs {
		if !object.IsNil(obj) {
			names = append(names, obj.GetName())
		}
	}
	return names
}

// UIDs returns the UIDs of objects that are about to be deleted, for
// Changes.Deleting. An object without a UID, as fake clients make them, is known
// by "namespace/name". Nil objects are skipped.
func UIDs[T metav1.Object](objs []T) []types.UID {
	var uids []types.UID
	for _, obj := range objs {
		if !object.IsNil(obj) {
			uids = append(uids, object.ID(obj))
		}
	}
	return uids
}

// Pending is what one owner has started and not yet seen, with names and UIDs sorted. It is a copy,
// so you may change it. A total can be negative, if Lower subtracted more than was expected.
type Pending struct {
	Changes
	// Since is when this was recorded, or when Add was last called.
	Since time.Time
}
