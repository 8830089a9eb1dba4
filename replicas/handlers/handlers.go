// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handlers turns the watch events of owners and children into passes: it finds the owner of each child, marks
// creations and deletions as observed, and wakes the owners that an event concerns. A Controller of package controller
// uses it, and a loop of your own can.
package handlers

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
)

// An Object is a pointer to an API type, either one of Kubernetes or one of your own.
type Object interface {
	metav1.Object
	runtime.Object
}

// Enqueue requests a pass for an owner after the given time, or immediately if it is 0. Of several pending requests
// for one owner, the earliest must lead to a pass. Enqueue may be called several times for one event. The AddAfter
// method of a work queue is an Enqueue.
type Enqueue func(owner types.NamespacedName, after time.Duration)

// An OwnerCache returns owners from memory. The handlers do not modify the owners.
type OwnerCache[O Object] interface {
	// Owner returns the owner with this name, or a NotFound error. The cache may drop fields that Spec does not read,
	// such as annotations and managedFields.
	Owner(ctx context.Context, name types.NamespacedName) (O, error)
	// Owners returns the owners in a namespace, or all owners if the namespace is "", as it is if
	// ClusterScoped is true. The handlers call Owners to find those that may adopt an orphan.
	Owners(ctx context.Context, namespace string) ([]O, error)
}

// A Config says whose events are handled, and what the handlers do. Owner.Kind, Spec, Owners and Enqueue are required.
type Config[O, C Object] struct {
	// Owner is the kind of the owners. ClusterScoped says that they are in no namespace.
	Owner         schema.GroupVersionKind
	ClusterScoped bool
	// Spec returns the Spec of an owner. The handlers use its Selector, MinReadySeconds, MaxDeletions and Rules. They
	// call Spec once for each version of an owner, and keep the result until the owner's DELETED event or a call of
	// Renew.
	Spec func(owner O) (replicas.Spec[C], error)
	// Owners finds owners.
	Owners OwnerCache[O]
	// Store has the creations and deletions that a loop of your own has recorded, by the result of
	// expectations.KeyOf for their owner. It is nil if the loop has a ledger instead.
	Store *expectations.Store[expectations.Key]
	// StatusDelay delays the pass after an update of a child that can change only the owner's status. The value 0 means
	// no delay.
	StatusDelay time.Duration
	// Enqueue requests a pass, unless another Enqueue is passed to a handler.
	Enqueue Enqueue
	Listener[O, C]
}

// A Listener learns what events mean, before the handlers request passes. Several goroutines may call its functions
// at the same time. A function that is nil is not called.
type Listener[O, C Object] struct {
	// ChildLeft is called when a child is being deleted, has another owner now, or left the cache. A loop with a ledger
	// calls its ObserveLeaving.
	ChildLeft func(owner expectations.Key, child types.UID)
	// ChildTaken is called when another owner has taken over a child of the owner.
	ChildTaken func(owner expectations.Key, child C)
	// ChildEnded is called after the DELETED event of a child. A tombstone is no such event, because it proves only that
	// a list did not contain the child.
	ChildEnded func(child types.UID)
	// WasReady is called when a child has become ready, or was ready until now. It is called only if readiness matters to
	// a plan or to the status.
	WasReady func(owner expectations.Key, child C)
	// CacheRegressed is called when a child of the owner went back to an older version. A loop with a ledger calls its
	// CacheRegressed.
	CacheRegressed func(owner expectations.Key)
	// OwnerLeft is called when the owner left the cache.
	OwnerLeft func(owner expectations.Key)
	// IsOwnWrite reports whether an update of an owner shows only what this process has written itself. Such an update
	// wakes no owner.
	IsOwnWrite func(owner O) bool
}

func (l Listener[O, C]) withDefaults() Listener[O, C] {
	if l.ChildLeft == nil {
		l.ChildLeft = func(expectations.Key, types.UID) {}
	}
	if l.ChildTaken == nil {
		l.ChildTaken = func(expectations.Key, C) {}
	}
	if l.ChildEnded == nil {
		l.ChildEnded = func(types.UID) {}
	}
	if l.WasReady == nil {
		l.WasReady = func(expectations.Key, C) {}
	}
	if l.CacheRegressed == nil {
		l.CacheRegressed = func(expectations.Key) {}
	}
	if l.OwnerLeft == nil {
		l.OwnerLeft = func(expectations.Key) {}
	}
	if l.IsOwnWrite == nil {
		l.IsOwnWrite = func(O) bool { return false }
	}
	return l
}

// Handlers handles watch events. It updates expectations, and wakes owners by requesting passes for them. The
// Handlers of a Controller have no expectations, because each pass checks what the cache shows. With client-go:
//
//	children.AddEventHandler(cache.ResourceEventHandlerFuncs{
//		AddFunc:    func(obj any) { report(h.ChildAdded(obj)) },
//		UpdateFunc: func(old, cur any) { report(h.ChildUpdated(old, cur)) },
//		DeleteFunc: func(obj any) { report(h.ChildDeleted(obj)) },
//	})
//
// Handlers is safe for concurrent use. Events of owners may arrive before or after related events of children,
// because one cache may be ahead of the other. An event that arrives twice counts only once toward the
// expectations. A handler requests passes with the Enqueue of its Config, unless another one is passed to it.
//
// A handler that returns an error has ignored the event: the object is nil or has the wrong type, or a child's
// controller reference contains the UID of an owner but another kind, so that the Config is wrong. Log the error
// and do not retry. A handler does not panic, even if its arguments are invalid.
//
// The owner of a child is the object that the child's controller reference names. The cache must contain it, with
// the kind and UID of the reference, in the child's namespace, or in none if ClusterScoped is set. The API group
// in the reference is not compared, so pods that were created by ReplicaSets of extensions/v1beta1 keep their
// owner.
//
// Differs from Kubernetes (pkg/controller/replicaset/replica_set.go):
//   - An event counts toward the expectations of the owner in the child's reference, even if the cache does
//     not contain that owner.
//   - Creations are identified by namespace and name, and deletions by UID. An event counts for every owner
//     that expects the creation or deletion, even if the child has another owner now.
//   - When an orphan leaves the cache, the owners whose selectors match it are woken, because one of them may
//     have adopted it before the cache showed the adoption.
//   - An update that changes the UID counts as a deletion and an addition. The cache sends one when a child was
//     deleted and created again with the same name while the watch was broken.
//   - An update that gives a child to another owner and begins its deletion wakes the former owner too.
//   - Nil labels and empty labels are equal.
type Handlers struct {
	watcher untyped
	newest  *newest
	enqueue Enqueue
}

// New returns Handlers for a Config, or an error if a required field is missing. The handlers for owners need not be
// registered if other code wakes changed owners and drops the records of deleted ones.
func New[O, C Object](config Config[O, C]) (*Handlers, error) {
	switch {
	case config.Owner.Kind == "":
		return nil, errors.New("handlers: Owner.Kind is empty")
	case config.Spec == nil:
		return nil, fmt.Errorf("handlers: kind %s: Spec is nil", config.Owner.Kind)
	case object.IsNil(config.Owners):
		return nil, fmt.Errorf("handlers: kind %s: Owners is nil", config.Owner.Kind)
	case config.Enqueue == nil:
		return nil, fmt.Errorf("handlers: kind %s: Enqueue is nil", config.Owner.Kind)
	}
	config.Listener = config.withDefaults()
	w := &watcher[O, C]{Config: config, newest: &newest{}}
	return &Handlers{w, w.newest, config.Enqueue}, nil
}

// Newest returns the highest resourceVersion of a child in the events so far, or "" if there is none. A cache that
// does not report its version has seen at least the child's change; see ledger.Snapshot.Newest.
func (h *Handlers) Newest() string {
	if h == nil || h.newest == nil {
		return ""
	}
	return h.newest.is()
}

// untyped hides the type parameters of a watcher.
type untyped interface {
	childAdded(obj any, q Enqueue) error
	childUpdated(old, cur any, q Enqueue) error
	childDeleted(obj any, q Enqueue) error
	ownerAdded(obj any, q Enqueue) error
	ownerUpdated(old, cur any, q Enqueue) error
	ownerDeleted(obj any, q Enqueue) error
}

// ChildAdded handles a child that is new to the cache. It marks the creation as observed and wakes the child's
// owner. For an orphan, it wakes all owners in the namespace whose selector matches, because one of them must
// adopt it; selectors of different owners should not match the same child. When the child is already being
// deleted, as after a restart of the process, ChildAdded marks its deletion as observed instead.
func (h *Handlers) ChildAdded(obj any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.childAdded(obj, enqueue)
}

// ChildUpdated handles a child that changed. It wakes the child's owner, and the former one too if the child had
// another. A child that became an orphan, or an orphan whose labels changed, wakes every owner that selects it. The
// first update with a deletionTimestamp marks the deletion as observed, so a replacement can be created before the
// child is gone. An update without a new resourceVersion is a resync and is ignored. See also Config.StatusDelay.
//
// When a child became ready and its owner has minReadySeconds, the owner is woken again after that time. But a work
// queue may drop this delayed request, because it keeps only the earliest one for an owner. So each pass should
// request the next one itself, as a Controller does. For pods, status.NextAvailabilityCheck returns the delay.
func (h *Handlers) ChildUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.childUpdated(old, cur, enqueue)
}

// ChildDeleted handles a child that left the cache. It marks the deletion as observed and wakes the owner. The
// object is a child, or a tombstone or a pointer to one: client-go's cache.DeletedFinalStateUnknown, or any other
// struct with exactly the fields Key string and Obj any.
func (h *Handlers) ChildDeleted(obj any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.childDeleted(obj, enqueue)
}

// OwnerAdded wakes an owner that is new to the cache.
func (h *Handlers) OwnerAdded(obj any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.ownerAdded(obj, enqueue)
}

// OwnerUpdated wakes an owner, even if nothing changed, as in a resync, but not if Listener.IsOwnWrite returns true for
// the update. When the UIDs differ, the owner was deleted and created again with the same name, so OwnerUpdated
// forgets the old one, as OwnerDeleted does.
func (h *Handlers) OwnerUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.ownerUpdated(old, cur, enqueue)
}

// OwnerDeleted forgets an owner that left the cache, and requests a pass for its name, because there may be a new
// owner of that name. The object is an owner or a tombstone, as for ChildDeleted.
func (h *Handlers) OwnerDeleted(obj any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.ownerDeleted(obj, enqueue)
}

// target returns the watcher, and the Enqueue that the handler must use.
func (h *Handlers) target(q []Enqueue) (untyped, Enqueue, error) {
	if h == nil || h.watcher == nil {
		return nil, nil, errors.New("handlers: New did not make these Handlers")
	}
	for _, enqueue := range q {
		if enqueue != nil {
			return h.watcher, enqueue, nil
		}
	}
	return h.watcher, h.enqueue, nil
}
