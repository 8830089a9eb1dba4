package controller

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
)

// Handlers turn watch events into expectations that are settled and owners that are
// woken. A Controller has them built in; NewHandlers makes them for a loop of your
// own, which records in a Store what it creates and deletes. They are event
// handlers as they are; with client-go:
//
//	children.AddEventHandler(cache.ResourceEventHandlerFuncs{
//		AddFunc:    func(obj any) { report(h.ChildAdded(obj)) },
//		UpdateFunc: func(old, cur any) { report(h.ChildUpdated(old, cur)) },
//		DeleteFunc: func(obj any) { report(h.ChildDeleted(obj)) },
//	})
//
// They may be called from any number of goroutines: the caches of children and of
// owners need not know of each other. An event that is repeated settles a deletion
// or a creation once. Passes are asked for at q, if one is given, and else where
// New or NewHandlers was told.
//
// An error says that an event was ignored because it holds no child or owner, or
// because the Kind is not that of the owners: a child's reference names another
// kind, yet has the UID of one of them. It is for the log: trying again is
// useless. Nothing that is passed in panics.
//
// A child's owner is what its controller reference names, if the kind is the
// owners', the cache knows the name in the child's namespace, or in none if
// Kind.ClusterScoped is set, and the UIDs are equal. The API group is not compared,
// just as a claim goes by UID alone: pods that ReplicaSets of extensions/v1beta1
// made are still theirs.
//
// Differs from Kubernetes (pkg/controller/replicaset/replica_set.go):
//   - An event settles the expectations of the owner that the reference names
//     also if that owner cannot be resolved; only waking it needs the owner.
//   - A creation is settled by namespace and name and a deletion by UID, whoever
//     waits for it and whoever owns the child now.
//   - An orphan that is gone wakes the owners that select it: it may have been
//     adopted before the cache could tell.
//   - An update from one UID to another, which is how a cache tells of a child
//     that was deleted and made again under its name while it was not watching,
//     is a deletion and an addition.
//   - Labels that are nil and labels that are empty are the same.
type Handlers struct {
	watcher untyped
	enqueue Enqueue
}

// untyped is a watcher of whatever owners and children.
type untyped interface {
	childAdded(obj any, q Enqueue) error
	childUpdated(old, cur any, q Enqueue) error
	childDeleted(obj any, q Enqueue) error
	ownerAdded(obj any, q Enqueue) error
	ownerUpdated(old, cur any, q Enqueue) error
	ownerDeleted(obj any, q Enqueue) error
}

// NewHandlers returns Handlers that settle what store has recorded under
// expectations.KeyOf of an owner. enqueue is where they ask for passes, unless they
// are given another. A part that is missing, or a Kind that can never work, is an
// error.
//
// Of the Kind they need Owner, Child and Spec, and of what Spec returns the
// Selector and, to come back when children have become available, MinReadySeconds
// and the Rules' Ready. Those of owners may be left out if something else wakes
// owners that change, and forgets the records of those that are gone.
func NewHandlers[O, C Object](kind Kind[O, C], owners OwnerCache[O], store *expectations.Store[expectations.Key], enqueue Enqueue) (*Handlers, error) {
	if err := kind.check(); err != nil {
		return nil, err
	}
	switch {
	case object.IsNil(owners):
		return nil, fmt.Errorf("controller: kind %s: owners is nil", kind.Owner.Kind)
	case store == nil:
		return nil, fmt.Errorf("controller: kind %s: store is nil", kind.Owner.Kind)
	case enqueue == nil:
		return nil, fmt.Errorf("controller: kind %s: enqueue is nil", kind.Owner.Kind)
	}
	w := &watcher[O, C]{
		kind: kind, from: owners, pending: store,
		left: func(expectations.Key, types.UID) {}, gone: store.Forget,
		isOwn: func(O, O, func()) bool { return false },
	}
	return &Handlers{w, enqueue}, nil
}

// ChildAdded handles a child that is new to the cache. One that has an owner
// settles a creation, and wakes that owner alone. An orphan wakes every owner in
// its namespace that selects it: more than one is the users' mistake, but one of
// them must adopt it. A child that is being deleted already, as seen after a
// restart, is handled as by ChildDeleted.
func (h *Handlers) ChildAdded(obj any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.childAdded(obj, enqueue)
}

// ChildUpdated handles a child that changed. It wakes the owner, the one before
// it, and for an orphan whose labels or controller changed every owner that
// selects it. The first update with a deletionTimestamp settles the deletion: a
// replacement need not wait until the child is gone. An owner with
// minReadySeconds is woken once more after that time, when a child that just
// became ready may have become available. Equal resourceVersions are a resync,
// and ignored. See Options.StatusDelay.
func (h *Handlers) ChildUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.childUpdated(old, cur, enqueue)
}

// ChildDeleted handles a child that left the cache: its deletion is settled, and
// its owner woken. obj is a child or a tombstone: a cache.DeletedFinalStateUnknown
// of client-go, which is recognised by its shape, or any other struct, or pointer
// to one, with just the fields Key string and Obj any.
func (h *Handlers) ChildDeleted(obj any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.childDeleted(obj, enqueue)
}

// OwnerAdded wakes an owner that is new to the cache.
func (h *Handlers) OwnerAdded(obj any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.ownerAdded(obj, enqueue)
}

// OwnerUpdated wakes an owner, whether anything changed or not: a resync, with
// equal resourceVersions, wakes it too. If the UIDs differ, the old one was deleted
// and made again under its name: that is handled as by OwnerDeleted first.
func (h *Handlers) OwnerUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.ownerUpdated(old, cur, enqueue)
}

// OwnerDeleted forgets an owner that left the cache and wakes its name, under
// which there may be another one. obj is an owner or a tombstone; see
// ChildDeleted.
func (h *Handlers) OwnerDeleted(obj any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.ownerDeleted(obj, enqueue)
}

// to returns who handles an event, and where it asks for passes.
func (h *Handlers) to(q []Enqueue) (untyped, Enqueue, error) {
	if h == nil || h.watcher == nil {
		return nil, nil, errors.New("controller: neither New nor NewHandlers made these handlers")
	}
	for _, enqueue := range q {
		if enqueue != nil {
			return h.watcher, enqueue, nil
		}
	}
	return h.watcher, h.enqueue, nil
}

// ChildAdded does what Handlers.ChildAdded does.
func (c *Controller) ChildAdded(obj any, q ...Enqueue) error {
	return c.events().ChildAdded(obj, q...)
}

// ChildUpdated does what Handlers.ChildUpdated does.
func (c *Controller) ChildUpdated(old, cur any, q ...Enqueue) error {
	return c.events().ChildUpdated(old, cur, q...)
}

// ChildDeleted does what Handlers.ChildDeleted does.
func (c *Controller) ChildDeleted(obj any, q ...Enqueue) error {
	return c.events().ChildDeleted(obj, q...)
}

// OwnerAdded does what Handlers.OwnerAdded does.
func (c *Controller) OwnerAdded(obj any, q ...Enqueue) error {
	return c.events().OwnerAdded(obj, q...)
}

// OwnerUpdated does what Handlers.OwnerUpdated does, with one exception: an update
// that shows nothing but the status that the Controller itself wrote last wakes
// nobody, unless a pass waits to see it.
//
// Differs from Kubernetes: there each status write leads to another pass.
func (c *Controller) OwnerUpdated(old, cur any, q ...Enqueue) error {
	return c.events().OwnerUpdated(old, cur, q...)
}

// OwnerDeleted does what Handlers.OwnerDeleted does.
func (c *Controller) OwnerDeleted(obj any, q ...Enqueue) error {
	return c.events().OwnerDeleted(obj, q...)
}
