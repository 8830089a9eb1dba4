// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
)

// Handlers turn watch events into two things: they settle expectations, and they
// wake owners, that is, they ask for a pass. A Controller has Handlers built in. It has
// no expectations, because its passes see for themselves what the cache shows.
// NewHandlers makes them for a loop of your own that records in a Store what it
// creates and deletes. With client-go:
//
//	children.AddEventHandler(cache.ResourceEventHandlerFuncs{
//		AddFunc:    func(obj any) { report(h.ChildAdded(obj)) },
//		UpdateFunc: func(old, cur any) { report(h.ChildUpdated(old, cur)) },
//		DeleteFunc: func(obj any) { report(h.ChildDeleted(obj)) },
//	})
//
// They may be called by several goroutines at once, and in any order: the cache of
// owners may be behind the cache of children, or ahead of it. An event that comes
// twice settles a creation or deletion once. If a handler is given an Enqueue, it
// asks for passes there, and otherwise at the one that New or NewHandlers was
// given.
//
// An error means that the event was ignored: it holds no child or owner, or a child
// refers to an owner by the right UID but by another kind, so that the Kind is
// wrong. Log it; trying again is useless. No argument makes a handler panic.
//
// The owner of a child is what its controller reference names: the kind must be
// that of the owners, the cache must have an owner with this name in the child's
// namespace (in no namespace if Kind.ClusterScoped is set), and the UIDs must be
// equal. The API group is not compared, so that pods made by ReplicaSets of
// extensions/v1beta1 keep their owner.
//
// Differs from Kubernetes (pkg/controller/replicaset/replica_set.go):
//   - An event settles the expectations of the owner that the reference names even
//     if the cache does not have that owner.
//   - A creation is settled by namespace and name, a deletion by UID, whoever waits
//     for it and whoever owns the child now.
//   - If an orphan is gone, the owners that select it are woken: one may have
//     adopted it before the cache could tell.
//   - An update from one UID to another is a deletion and an addition. A cache
//     sends it if a child was deleted and created again with the same name while
//     the watch was broken.
//   - An update that gives a child to another owner and begins its deletion wakes the
//     former owner too.
//   - Nil labels and empty labels are equal.
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
// expectations.KeyOf of an owner. They ask for passes at enqueue, unless they are
// given another Enqueue. It is an error if owners, store or enqueue is nil, or if
// the Kind can never work.
//
// Of the Kind only Owner, Child, ClusterScoped and Spec are used; of what Spec
// returns, only the Selector, MinReadySeconds, and Ready of the Rules. The last two
// are for waking an owner when a child may have become available. The handlers of
// owners need not be used if something else wakes owners that changed, and forgets
// the records of owners that are gone.
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
		kind: kind, from: owners, store: store,
		left: func(expectations.Key, types.UID) {}, gone: store.Forget, back: func(expectations.Key) {},
		ended: func(types.UID) {}, ready: func(expectations.Key, C) {},
		isOwn: func(O, O, func()) bool { return false },
	}
	return &Handlers{w, enqueue}, nil
}

// ChildAdded handles a child that is new to the cache. If the child has an owner,
// ChildAdded settles the creation and wakes that owner. If it is an orphan,
// ChildAdded wakes every owner in its namespace that selects it: one of them must
// adopt it, and more than one is a mistake of their users. If the child is being
// deleted already, as after a restart, its deletion is settled instead.
func (h *Handlers) ChildAdded(obj any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.childAdded(obj, enqueue)
}

// ChildUpdated handles a child that changed. It wakes the owner and, if the owner
// changed, the former owner. If an orphan's labels or owner changed, it wakes every
// owner that selects the orphan. The first update with a deletionTimestamp settles
// the deletion, so a replacement need not wait until the child is gone. If a child
// became ready and its owner has minReadySeconds, the owner is woken once more
// after that time. A work queue may drop such a delayed request, as it keeps only the
// earliest for an owner; so each pass should ask for the next by itself, as a
// Controller's does. For pods, status.NextAvailabilityCheck says when. Updates with
// equal resourceVersions are a resync and are ignored. See also Options.StatusDelay.
func (h *Handlers) ChildUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.childUpdated(old, cur, enqueue)
}

// ChildDeleted handles a child that left the cache: it settles the deletion and
// wakes the owner. obj is a child or a tombstone: client-go's
// cache.DeletedFinalStateUnknown, or any other struct, or pointer to one, that has
// exactly the fields Key string and Obj any.
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

// OwnerUpdated wakes an owner, even if nothing changed: a resync, with equal
// resourceVersions, wakes it too. If the UIDs differ, the owner was deleted and
// created again with the same name; the old one is then forgotten as by
// OwnerDeleted.
func (h *Handlers) OwnerUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.ownerUpdated(old, cur, enqueue)
}

// OwnerDeleted forgets an owner that left the cache and wakes its name, since there
// may be a new owner with the same name. obj is an owner or a tombstone; see
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
