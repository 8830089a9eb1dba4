// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// Handlers handles watch events. It updates expectations, and wakes owners by requesting passes for them.
// The Handlers of a Controller have no expectations, because each pass checks what the cache shows. If you
// write your own loop and record its creations and deletions in a Store, use NewHandlers. For example, with
// client-go:
//
//	children.AddEventHandler(cache.ResourceEventHandlerFuncs{
//		AddFunc:    func(obj any) { report(h.ChildAdded(obj)) },
//		UpdateFunc: func(old, cur any) { report(h.ChildUpdated(old, cur)) },
//		DeleteFunc: func(obj any) { report(h.ChildDeleted(obj)) },
//	})
//
// Handlers is safe for concurrent use. Events of owners may arrive before or after related events of
// children, because one cache may be ahead of the other. An event that arrives twice counts only once
// toward the expectations. If an Enqueue is passed to a handler, the handler calls this Enqueue to request
// passes. Otherwise, it calls the Enqueue that was passed to New or NewHandlers.
//
// A handler that returns an error has ignored the event. A handler returns an error if the object is nil or
// has the wrong type. A handler also returns an error if a child's controller reference contains the UID of
// an owner but another kind. In this case, the Kind that was passed to New or NewHandlers is wrong. Log the
// error and do not retry. A handler does not panic, even if its arguments are invalid.
//
// The owner of a child is the object that the child's controller reference names. The kind and UID in the
// reference must be those of the owner. The cache must contain the owner. If Kind.ClusterScoped is set, the
// owner must be in no namespace. If Kind.ClusterScoped is not set, the owner must be in the child's
// namespace. The API group in the reference is not compared, so pods that were created by ReplicaSets of
// extensions/v1beta1 keep their owner.
//
// Differs from Kubernetes (pkg/controller/replicaset/replica_set.go):
//   - An event counts toward the expectations of the owner in the child's reference, even if the cache does
//     not contain that owner.
//   - Creations are identified by namespace and name, and deletions by UID. An event counts for every owner
//     that expects the creation or deletion, even if the child has another owner now.
//   - If an orphan leaves the cache, the owners whose selectors match it are woken. One of these owners may
//     have adopted the orphan before the cache showed the adoption.
//   - An update that changes the UID counts as a deletion and an addition. If a child is deleted and created
//     again with the same name while the watch is broken, the cache sends an update that changes the UID.
//   - If one update gives a child to another owner and begins the deletion of the child, the former owner
//     is also woken.
//   - Nil labels and empty labels are equal.
type Handlers struct {
	watcher untyped
	enqueue Enqueue
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

// NewHandlers returns Handlers that update the expectations in store. The key of an owner is the result of
// expectations.KeyOf. To request a pass, the Handlers call enqueue. If another Enqueue is passed to a
// handler, the handler calls that one instead. NewHandlers returns an error if owners, store or enqueue is
// nil, or if the Kind is invalid.
//
// NewHandlers uses only the fields Owner, Child, ClusterScoped and Spec of the Kind. Of the Spec, it uses
// only Selector, MinReadySeconds and Rules.Ready. The Handlers use MinReadySeconds and Rules.Ready to wake
// an owner when a child may have become available. If other code wakes changed owners and drops the records
// of deleted owners, you do not have to register the handlers for owners.
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
		kind: kind, from: owners, store: store, listener: storeOnly[O, C]{store},
	}
	return &Handlers{w, enqueue}, nil
}

// ChildAdded handles a child that is new to the cache. If the child has an owner, ChildAdded marks the
// creation as observed and wakes that owner. If the child is an orphan, one of the owners with a matching
// selector must adopt the child. Therefore ChildAdded wakes all owners in the namespace that have a
// matching selector. The selectors of different owners should not match the same child. If the child is
// already being deleted, for example after a restart of the process, ChildAdded marks the deletion as
// observed instead.
func (h *Handlers) ChildAdded(obj any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.childAdded(obj, enqueue)
}

// ChildUpdated handles a child that changed. It wakes the child's owner. If the child had another owner
// before, ChildUpdated also wakes the former owner. If a child became an orphan, or if the labels of an
// orphan changed, ChildUpdated wakes every owner that selects the orphan. The first update with a
// deletionTimestamp marks the deletion as observed, so a replacement can be created before the child is
// gone. If a child became ready and its owner has minReadySeconds, the owner is woken again after that
// time. A work queue may drop this delayed request, because it keeps only the earliest request for an
// owner. Each pass should therefore request the next pass itself, as a Controller does. For pods,
// status.NextAvailabilityCheck returns the delay. If both versions have the same resourceVersion, the
// update is a resync and is ignored. See also Options.StatusDelay.
func (h *Handlers) ChildUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.childUpdated(old, cur, enqueue)
}

// ChildDeleted handles a child that left the cache. It marks the deletion as observed and wakes the owner.
// The argument obj is a child or a tombstone. A tombstone is client-go's cache.DeletedFinalStateUnknown, or
// any other struct with exactly the fields Key string and Obj any. A pointer to a tombstone is also
// allowed.
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

// OwnerUpdated wakes an owner, even if nothing changed, as in a resync. If the UIDs differ, the owner was
// deleted and created again with the same name. OwnerUpdated then forgets the old owner, as OwnerDeleted
// does.
func (h *Handlers) OwnerUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.target(q)
	if err != nil {
		return err
	}
	return w.ownerUpdated(old, cur, enqueue)
}

// OwnerDeleted forgets an owner that left the cache. It also requests a pass for the owner's name, because
// there may be a new owner with the same name. The argument obj is an owner or a tombstone, as described
// for ChildDeleted.
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
		return nil, nil, errors.New("controller: neither New nor NewHandlers made these handlers")
	}
	for _, enqueue := range q {
		if enqueue != nil {
			return h.watcher, enqueue, nil
		}
	}
	return h.watcher, h.enqueue, nil
}

// A watcher handles the events of a Controller, or of Handlers that NewHandlers has returned. It updates
// expectations and wakes owners.
type watcher[O, C Object] struct {
	kind     Kind[O, C]
	from     OwnerCache[O]
	store    *expectations.Store[expectations.Key] // the Store passed to NewHandlers; nil in a Controller, which uses ledgers instead
	specs    sync.Map                              // a keptSpec by the expectations.Key of the owner, until the owner's DELETED event
	newest   newest
	listener listener[O, C]
	// statusDelay is Options.StatusDelay. If an update of a child can change only the owner's status, the
	// pass that follows the update is delayed by statusDelay.
	statusDelay time.Duration
}

// A listener is informed of watch events. The handlers call its methods before they request passes.
type listener[O, C Object] interface {
	childLeft(owner expectations.Key, child types.UID) // the child is being deleted, has another owner now, or left the cache
	childTaken(owner expectations.Key, child C)        // another owner has taken over the child
	childEnded(child types.UID)                        // a DELETED event has come for the child
	wasReady(owner expectations.Key, child C)          // the child has become ready, or was until now
	cacheWentBack(owner expectations.Key)              // a child of the owner went back to an older version
	forget(owner expectations.Key)                     // the owner left the cache
	isOwnWrite(cur O) bool                             // the update of an owner shows only the Controller's own write
}

// storeOnly is the listener that NewHandlers uses. It only removes deleted owners from the Store.
type storeOnly[O, C Object] struct {
	*expectations.Store[expectations.Key]
}

func (s storeOnly[O, C]) forget(owner expectations.Key)       { s.Forget(owner) }
func (storeOnly[O, C]) childLeft(expectations.Key, types.UID) {}
func (storeOnly[O, C]) childTaken(expectations.Key, C)        {}
func (storeOnly[O, C]) childEnded(types.UID)                  {}
func (storeOnly[O, C]) wasReady(expectations.Key, C)          {}
func (storeOnly[O, C]) cacheWentBack(expectations.Key)        {}
func (storeOnly[O, C]) isOwnWrite(O) bool                     { return false }

func (w *watcher[O, C]) childAdded(obj any, q Enqueue) error {
	child, err := w.childOf(obj)
	if err == nil {
		w.newest.saw(child)
		events[O, C]{w, q}.added(child)
	}
	return err
}

func (w *watcher[O, C]) childUpdated(old, cur any, q Enqueue) error {
	was, err := w.childOf(old)
	if err != nil {
		return err
	}
	child, err := w.childOf(cur)
	if err != nil {
		return err
	}
	e := events[O, C]{w, q}
	if resourceversion.Older(child.GetResourceVersion(), was.GetResourceVersion()) {
		e.wentBack(was, child)
	}
	w.newest.saw(child)
	switch {
	case child.GetResourceVersion() != "" && was.GetResourceVersion() == child.GetResourceVersion(): // V6
	case was.GetUID() != child.GetUID():
		e.onGone(was) // the cache missed some events
		e.added(child)
	case child.GetDeletionTimestamp() != nil:
		e.onDeleting(was, child)
	default:
		e.onChanged(was, child)
	}
	return nil
}

func (w *watcher[O, C]) childDeleted(obj any, q Enqueue) error {
	child, isTombstone, err := unwrap(obj, w.childOf)
	if err != nil {
		return err
	}
	w.newest.saw(child)
	if !isTombstone { // a tombstone proves only that a list did not contain the child
		w.listener.childEnded(child.GetUID())
	}
	events[O, C]{w, q}.onGone(child)
	return nil
}

func (w *watcher[O, C]) ownerAdded(obj any, q Enqueue) error {
	owner, err := asObject[O](obj, "owner")
	if err == nil {
		events[O, C]{w, q}.wake(owner, 0)
	}
	return err
}

func (w *watcher[O, C]) ownerUpdated(old, cur any, q Enqueue) error {
	was, err := asObject[O](old, "owner")
	if err != nil {
		return err
	}
	owner, err := asObject[O](cur, "owner")
	if err != nil {
		return err
	}
	e := events[O, C]{w, q}
	switch {
	case was.GetUID() != owner.GetUID():
		e.ownerDeleted(was)
	case was.GetResourceVersion() != owner.GetResourceVersion() && w.listener.isOwnWrite(owner): // a resync shows it again
		return nil
	}
	e.wake(owner, 0)
	return nil
}

func (w *watcher[O, C]) ownerDeleted(obj any, q Enqueue) error {
	owner, _, err := unwrap(obj, func(obj any) (O, error) { return asObject[O](obj, "owner") })
	if err == nil {
		events[O, C]{w, q}.ownerDeleted(owner)
	}
	return err
}

// events combines a watcher with the Enqueue that is used for one watch event.
type events[O, C Object] struct {
	*watcher[O, C]
	enqueue Enqueue
}

func (e events[O, C]) added(c C) {
	if c.GetDeletionTimestamp() != nil {
		e.childDeleted(c)
		return
	}
	key, owner, found := e.ownerOf(c)
	if e.store != nil {
		e.store.CreationObserved(key, c.GetName())
	}
	e.creationObserved(c)
	switch {
	case metav1.GetControllerOfNoCopy(c) == nil:
		e.wakeSelecting(c)
	case found:
		e.wake(owner, 0)
	}
}

// creationObserved marks the creation of c as observed for all owners in the namespace that expect a child
// with this name. Usually only the owner of c expects the child.
func (e events[O, C]) creationObserved(c C) {
	if e.store == nil {
		return
	}
	name := c.GetName()
	for _, key := range e.store.OwnersOfCreation(name) {
		if key.Namespace == e.namespaceOf(c) && e.store.CreationObserved(key, name) {
			e.wakeKey(key)
		}
	}
}

// onDeleting is the handler for updates of a child that is being deleted. If the labels or the owner changed,
// the deletion is also marked as observed for the owner of the old version (V7).
func (e events[O, C]) onDeleting(was, c C) {
	e.childDeleted(c)
	if !maps.Equal(was.GetLabels(), c.GetLabels()) || !sameOwner(metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(c)) {
		e.childDeleted(was)
	}
}

// onGone handles a child that left the cache.
func (e events[O, C]) onGone(c C) {
	e.childDeleted(c)
	if metav1.GetControllerOfNoCopy(c) != nil {
		return
	}
	for _, owner := range e.selecting(c) {
		e.listener.childLeft(expectations.KeyOf(owner), object.ID(c))
		e.wake(owner, 0)
	}
}

// wentBack records that the cache went back to an older version of a child. If the two versions of the
// child name different owners, wentBack records for both owners that the cache went back.
func (e events[O, C]) wentBack(was, c C) {
	former, _, _ := e.ownerOf(was)
	e.listener.cacheWentBack(former)
	if key, _, _ := e.ownerOf(c); key != former {
		e.listener.cacheWentBack(key)
	}
}

// childDeleted marks the deletion of c as observed for every owner that expects this deletion. Usually only
// the owner of c expects the deletion.
func (e events[O, C]) childDeleted(c C) {
	ownKey, owner, found := e.ownerOf(c)
	id := object.ID(c)
	e.creationObserved(c) // a child that is being deleted, or is gone, must have been created
	e.listener.childLeft(ownKey, id)
	if e.store != nil {
		e.store.DeletionObserved(ownKey, id)
		for _, key := range e.store.OwnersOfDeletion(id) {
			if e.store.DeletionObserved(key, id) {
				e.wakeKey(key)
			}
		}
	}
	if found {
		e.wake(owner, 0)
	}
}

// onChanged handles an update of a child that is not being deleted.
func (e events[O, C]) onChanged(was, c C) {
	before, now := metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(c)
	moved := !sameOwner(before, now)
	if moved {
		key, owner, found := e.ownerOf(was)
		e.listener.childLeft(key, object.ID(was))
		if now != nil {
			e.listener.childTaken(key, was)
		}
		if found {
			e.wake(owner, 0)
		}
	}
	if now != nil {
		e.ownedChanged(was, c)
		return
	}
	if moved || !maps.Equal(was.GetLabels(), c.GetLabels()) {
		e.wakeSelecting(c)
	}
}

func (e events[O, C]) ownedChanged(was, c C) {
	key, owner, found := e.ownerOf(c)
	if !found {
		return
	}
	spec, after := e.specOf(owner), time.Duration(0)
	turned := (spec.minReady > 0 || spec.rules.ReadyWithin > 0) && spec.rules.Ready != nil && spec.rules.Ready(was) != spec.rules.Ready(c)
	if turned {
		e.listener.wasReady(key, c) // called before wake, because the next pass uses the recorded time
	}
	if e.statusDelay > 0 && spec.onlyStatusChanges(was, c) {
		after = e.statusDelay
	}
	e.wake(owner, after)
	if turned && spec.minReady > 0 && spec.rules.Ready(c) {
		e.wake(owner, spec.minReady)
	}
}

// onlyStatusChanges reports whether an update of an owned child can change only the
// status of its owner.
func (s keptSpec[C]) onlyStatusChanges(was, c C) bool {
	same := func(rule func(C) bool) bool { return rule == nil || rule(was) == rule(c) }
	return s.err == nil && !s.limited && sameOwner(metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(c)) &&
		maps.Equal(was.GetLabels(), c.GetLabels()) && same(s.rules.Active) && same(s.rules.MustGo) && same(s.rules.MustStay) && same(s.rules.Ended)
}

func (e events[O, C]) ownerDeleted(owner O) {
	key := expectations.KeyOf(owner)
	e.specs.Delete(key)
	e.listener.forget(key)
	e.wake(owner, 0)
}

// ownerOf returns the key of the owner in c's controller reference, and the owner itself if the cache has
// it. If c has no reference to an owner of this kind, the key is zero and belongs to no owner.
func (w *watcher[O, C]) ownerOf(c C) (key expectations.Key, owner O, found bool) {
	ref := metav1.GetControllerOfNoCopy(c)
	if ref == nil || ref.Kind != w.kind.Owner.Kind || ref.UID == "" && object.GroupOf(ref) != w.kind.Owner.Group {
		return key, owner, false
	}
	key = w.keyOf(c, ref)
	owner, found = w.find(key)
	return key, owner, found
}

func (w *watcher[O, C]) keyOf(c metav1.Object, ref *metav1.OwnerReference) expectations.Key {
	return expectations.Key{NamespacedName: types.NamespacedName{Namespace: w.namespaceOf(c), Name: ref.Name}, UID: ref.UID}
}

// namespaceOf returns the namespace of a child's owner.
func (w *watcher[O, C]) namespaceOf(c metav1.Object) string {
	if w.kind.ClusterScoped {
		return ""
	}
	return c.GetNamespace()
}

func (w *watcher[O, C]) find(key expectations.Key) (owner O, found bool) {
	owner, err := w.from.Owner(context.Background(), key.NamespacedName)
	if err != nil || object.IsNil(owner) || owner.GetUID() != key.UID {
		return owner, false
	}
	return owner, true
}

func (w *watcher[O, C]) selectorOf(owner O) (labels.Selector, error) {
	kept := w.specOf(owner)
	return kept.selector, kept.err
}

// specOf returns the spec of the given version of the owner. It calls Kind.Spec once for each version, and
// keeps the result. If the owner has no UID or no resourceVersion, or if Kind.Spec returns an error other
// than a refusal, the result is not kept.
func (w *watcher[O, C]) specOf(owner O) keptSpec[C] {
	key, version := expectations.KeyOf(owner), owner.GetResourceVersion()
	if is, ok := w.specs.Load(key); ok {
		if kept, ok := is.(keptSpec[C]); ok && kept.resourceVersion == version {
			return kept
		}
	}
	spec, err := w.kind.Spec(owner)
	kept := keptSpec[C]{resourceVersion: version, selector: spec.Selector, err: err}
	if err == nil {
		kept.minReady, kept.rules = time.Duration(spec.MinReadySeconds)*time.Second, spec.Rules.Complete()
		kept.limited = spec.MaxDeletions != nil
	}
	var refused *replicas.RefusedError
	if key.UID != "" && version != "" && (err == nil || errors.As(err, &refused)) {
		w.specs.Store(key, kept)
	}
	return kept
}

func (e events[O, C]) wakeSelecting(orphan C) {
	for _, owner := range e.selecting(orphan) {
		e.wake(owner, 0)
	}
}

// selecting returns the owners whose selectors match an orphan.
func (e events[O, C]) selecting(orphan C) []O {
	owners, err := e.from.Owners(context.Background(), e.namespaceOf(orphan))
	if err != nil {
		return nil
	}
	return selector.Owners(orphan, owners, e.selectorOf)
}

func (e events[O, C]) wakeKey(key expectations.Key) {
	if owner, found := e.find(key); found {
		e.wake(owner, 0)
	}
}

func (e events[O, C]) wake(owner O, after time.Duration) {
	e.enqueue(nameOf(owner), after)
}

// sameOwner reports whether two references resolve to the same owner.
func sameOwner(a, b *metav1.OwnerReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID
}

// childOf returns the child of an event. It returns an error if the child's controller reference contains
// the UID of one of the owners but another kind.
func (w *watcher[O, C]) childOf(obj any) (C, error) {
	c, err := asObject[C](obj, "child")
	if err != nil {
		return c, err
	}
	ref := metav1.GetControllerOfNoCopy(c)
	if ref == nil || ref.Kind == w.kind.Owner.Kind || ref.UID == "" {
		return c, nil
	}
	if _, found := w.find(w.keyOf(c, ref)); found {
		return c, fmt.Errorf("controller: %q is controlled by %s %q, which has the UID of an owner, but the owners' kind is %s",
			object.Name(c), ref.Kind, ref.Name, w.kind.Owner.Kind)
	}
	return c, nil
}

func asObject[T Object](obj any, what string) (T, error) {
	t, ok := obj.(T)
	switch {
	case !ok:
		return t, fmt.Errorf("controller: %s: want %s, got %T", what, reflect.TypeFor[T](), obj)
	case object.IsNil(t):
		return t, fmt.Errorf("controller: %s is nil", what)
	}
	return t, nil
}

// tombstone has the same fields as client-go's cache.DeletedFinalStateUnknown. If a cache missed the
// deletion event of an object, its tombstone contains the last known state of the object.
type tombstone struct {
	Key string
	Obj any
}

// unwrap converts the object of a deletion event. If this object is a tombstone, unwrap converts the object
// in the tombstone.
func unwrap[T any](obj any, convert func(any) (T, error)) (t T, isTombstone bool, err error) {
	shape, v := reflect.TypeFor[tombstone](), reflect.Indirect(reflect.ValueOf(obj))
	if !v.IsValid() || !v.CanConvert(shape) {
		t, err = convert(obj)
		return t, false, err
	}
	wrapped, _ := reflect.TypeAssert[tombstone](v.Convert(shape))
	if t, err = convert(wrapped.Obj); err != nil {
		err = fmt.Errorf("%w, in the tombstone of %q", err, wrapped.Key)
	}
	return t, true, err
}

// A keptSpec holds the parts of an owner's last spec that event handlers need. Parsing a selector takes fifty times
// as long as matching it, and an orphan is compared with every owner in its namespace.
type keptSpec[C Object] struct {
	resourceVersion string
	selector        labels.Selector
	err             error
	minReady        time.Duration
	rules           replicas.Rules[C]
	limited         bool // MaxDeletions is set
}

// newest holds the newest resourceVersion of any child in the events so far.
type newest struct {
	mu      sync.Mutex
	version string
}

func (n *newest) saw(child metav1.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	version := child.GetResourceVersion()
	if isNumber := resourceversion.Reached(version, version); isNumber && !resourceversion.Older(version, n.version) {
		n.version = version
	}
}

func (n *newest) is() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.version
}
