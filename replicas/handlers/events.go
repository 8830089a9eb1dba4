// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
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

// A watcher handles the events of the owners and children of one Config.
type watcher[O, C Object] struct {
	Config[O, C]
	newest *newest
	specs  sync.Map // a *keptSpec by the expectations.Key of the owner, until the owner's DELETED event
}

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
	case child.GetResourceVersion() != "" && was.GetResourceVersion() == child.GetResourceVersion(): // a resync (V6)
	case was.GetUID() != child.GetUID():
		// The watch was broken while web-2 was deleted and created again. The list after it shows one update.
		e.onGone(was)
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
	// A tombstone proves only that a list lacked the child, and a server that lags behind may have made the list.
	// After ChildEnded, a live list that has the child proves a restore, which ends the program.
	if !isTombstone {
		w.ChildEnded(child.GetUID())
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
	case was.GetUID() != owner.GetUID(): // it was deleted and created again while the watch was broken
		e.ownerDeleted(was)
	case was.GetResourceVersion() != owner.GetResourceVersion() && w.IsOwnWrite(owner): // it wakes no owner, but a resync does
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
	if c.GetDeletionTimestamp() != nil { // as in the first list of a new process
		e.childDeleted(c)
		return
	}
	key, owner, found := e.ownerOf(c)
	if e.Store != nil {
		e.Store.CreationObserved(key, c.GetName())
	}
	e.creationObserved(c)
	switch {
	case metav1.GetControllerOfNoCopy(c) == nil: // one of the owners that select it may adopt it
		e.wakeSelecting(c)
	case found:
		e.wake(owner, 0)
	}
}

// creationObserved marks the creation of c as observed for each owner that expects it.
func (e events[O, C]) creationObserved(c C) {
	if e.Store == nil {
		return
	}
	name := c.GetName()
	// web has created web-2, which became an orphan or another owner's before its event. web still waits for it.
	for _, key := range e.Store.OwnersOfCreation(name) {
		if key.Namespace == e.namespaceOf(c) && e.Store.CreationObserved(key, name) {
			e.wakeKey(key)
		}
	}
}

// onDeleting handles an update of a child that is being deleted.
func (e events[O, C]) onDeleting(was, c C) {
	e.childDeleted(c)
	// canary lost the child to web in the same update, and no other event says so to canary (V7).
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
	// web has adopted the orphan, and it was deleted before the cache showed the adoption.
	for _, owner := range e.selecting(c) {
		e.ChildLeft(expectations.KeyOf(owner), object.ID(c))
		e.wake(owner, 0)
	}
}

// wentBack records, for the owners of both versions, that the cache went back to an older version of a child.
func (e events[O, C]) wentBack(was, c C) {
	former, _, _ := e.ownerOf(was)
	e.CacheRegressed(former)
	if key, _, _ := e.ownerOf(c); key != former {
		e.CacheRegressed(key)
	}
}

// childDeleted marks the deletion of c as observed for each owner that expects it.
func (e events[O, C]) childDeleted(c C) {
	ownKey, owner, found := e.ownerOf(c)
	id := object.ID(c)
	e.creationObserved(c) // this may be the first event of the child
	e.ChildLeft(ownKey, id)
	if e.Store != nil {
		e.Store.DeletionObserved(ownKey, id)
		// web has deleted web-2, which was orphaned or adopted by another owner before the event came.
		for _, key := range e.Store.OwnersOfDeletion(id) {
			if e.Store.DeletionObserved(key, id) {
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
	if moved { // the former owner is one child short
		key, owner, found := e.ownerOf(was)
		e.ChildLeft(key, object.ID(was))
		if now != nil {
			e.ChildTaken(key, was)
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
		e.WasReady(key, c) // before wake, because the pass uses the recorded time
	}
	if e.StatusDelay > 0 && spec.onlyStatusChanges(was, c) {
		after = e.StatusDelay
	}
	e.wake(owner, after)
	if turned && spec.minReady > 0 && spec.rules.Ready(c) {
		e.wake(owner, spec.minReady)
	}
}

// onlyStatusChanges reports whether an update of an owned child can change only the status of its owner.
func (s *keptSpec[C]) onlyStatusChanges(was, c C) bool {
	same := func(rule func(C) bool) bool { return rule == nil || rule(was) == rule(c) }
	return s.err == nil && !s.limited && sameOwner(metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(c)) &&
		maps.Equal(was.GetLabels(), c.GetLabels()) && same(s.rules.Active) && same(s.rules.Leaving) && same(s.rules.MustGo) && same(s.rules.MustStay) && same(s.rules.Ended) &&
		(s.groupOf == nil || s.groupOf(was) == s.groupOf(c))
}

func (e events[O, C]) ownerDeleted(owner O) {
	key := expectations.KeyOf(owner)
	e.specs.Delete(key)
	if e.Store != nil {
		e.Store.Forget(key)
	}
	e.OwnerLeft(key)
	e.wake(owner, 0)
}

// ownerOf returns the key of the owner in c's controller reference, which is zero if it has none of this kind, and the
// owner itself if the cache has it.
func (w *watcher[O, C]) ownerOf(c C) (key expectations.Key, owner O, found bool) {
	ref := metav1.GetControllerOfNoCopy(c)
	if ref == nil || ref.Kind != w.Owner.Kind || ref.UID == "" && object.GroupOf(ref) != w.Owner.Group {
		return key, owner, false
	}
	key = w.keyOf(c, ref)
	owner, found = w.find(key)
	return key, owner, found
}

func (w *watcher[O, C]) keyOf(c metav1.Object, ref *metav1.OwnerReference) expectations.Key {
	return expectations.Key{NamespacedName: types.NamespacedName{Namespace: w.namespaceOf(c), Name: ref.Name}, UID: ref.UID}
}

func (w *watcher[O, C]) namespaceOf(c metav1.Object) string {
	if w.ClusterScoped {
		return ""
	}
	return c.GetNamespace()
}

func (w *watcher[O, C]) find(key expectations.Key) (owner O, found bool) {
	owner, err := w.Owners.Owner(context.Background(), key.NamespacedName)
	if err != nil || object.IsNil(owner) || owner.GetUID() != key.UID {
		return owner, false
	}
	return owner, true
}

func (w *watcher[O, C]) selectorOf(owner O) (labels.Selector, error) {
	kept := w.specOf(owner)
	return kept.selector, kept.err
}

// specOf returns the spec of this version of the owner, which is kept if it may be.
func (w *watcher[O, C]) specOf(owner O) *keptSpec[C] {
	key := expectations.KeyOf(owner)
	before, found := w.specs.Load(key)
	if kept, ok := before.(*keptSpec[C]); ok && kept.resourceVersion == owner.GetResourceVersion() {
		return kept
	}
	spec, err := w.Spec(owner)
	kept := newKeptSpec(owner, spec, err)
	// While Spec was called, a pass may have called Renew with the Spec of a newer template, which must stay.
	switch {
	case !kept.mayStay(key):
	case found:
		w.specs.CompareAndSwap(key, before, kept)
	default:
		w.specs.LoadOrStore(key, kept)
	}
	return kept
}

func newKeptSpec[C Object](owner Object, spec replicas.Spec[C], err error) *keptSpec[C] {
	kept := &keptSpec[C]{resourceVersion: owner.GetResourceVersion(), selector: spec.Selector, err: err}
	if err == nil {
		kept.minReady, kept.rules = time.Duration(spec.MinReadySeconds)*time.Second, spec.Rules.Complete()
		kept.limited = spec.MaxDeletions != nil || spec.Update != nil ||
			slices.ContainsFunc(spec.Groups, func(g replicas.Group[C]) bool { return g.MaxDeletions != nil })
		kept.groupOf = spec.GroupOf
	}
	return kept
}

// mayStay reports whether another call of Spec would return the same. A refusal comes again, but another error may not.
func (s *keptSpec[C]) mayStay(key expectations.Key) bool {
	var refused *replicas.RefusedError
	return key.UID != "" && s.resourceVersion != "" && (s.err == nil || errors.As(s.err, &refused))
}

func (e events[O, C]) wakeSelecting(orphan C) {
	for _, owner := range e.selecting(orphan) {
		e.wake(owner, 0)
	}
}

func (e events[O, C]) selecting(orphan C) []O {
	owners, err := e.Owners.Owners(context.Background(), e.namespaceOf(orphan))
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
	e.enqueue(expectations.KeyOf(owner).NamespacedName, after)
}

// sameOwner reports whether two references resolve to the same owner.
func sameOwner(a, b *metav1.OwnerReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID
}

// childOf returns the child of an event.
func (w *watcher[O, C]) childOf(obj any) (C, error) {
	c, err := asObject[C](obj, "child")
	if err != nil {
		return c, err
	}
	ref := metav1.GetControllerOfNoCopy(c)
	if ref == nil || ref.Kind == w.Owner.Kind || ref.UID == "" {
		return c, nil
	}
	// The Config has another kind than the owners, so none of their children would ever be found.
	if _, found := w.find(w.keyOf(c, ref)); found {
		return c, fmt.Errorf("handlers: %q is controlled by %s %q, which has the UID of an owner, but the owners' kind is %s",
			object.Name(c), ref.Kind, ref.Name, w.Owner.Kind)
	}
	return c, nil
}

func asObject[T Object](obj any, what string) (T, error) {
	t, ok := obj.(T)
	switch {
	case !ok:
		return t, fmt.Errorf("handlers: %s: want %s, got %T", what, reflect.TypeFor[T](), obj)
	case object.IsNil(t):
		return t, fmt.Errorf("handlers: %s is nil", what)
	}
	return t, nil
}

// tombstone has the fields of client-go's cache.DeletedFinalStateUnknown, which a cache sends in place of an object
// whose DELETED event it missed.
type tombstone struct {
	Key string
	Obj any
}

// unwrap converts the object of a deletion event, or the one in its tombstone.
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

// Renew replaces what handlers with these types keep of an owner's Spec by the result of another call of Spec. A loop
// of your own calls it when it has called Spec for a pass, if the Spec reads other objects than the owner, because they
// may change without the owner, and the handlers then do not call Spec again. A Controller does so in each pass. For
// other types, and for Handlers that New did not make, Renew does nothing.
func Renew[O, C Object](h *Handlers, owner O, spec replicas.Spec[C], err error) {
	if h == nil || object.IsNil(owner) {
		return
	}
	w, ok := h.watcher.(*watcher[O, C])
	if !ok {
		return
	}
	key := expectations.KeyOf(owner)
	if kept := newKeptSpec(owner, spec, err); kept.mayStay(key) {
		w.specs.Store(key, kept)
	} else {
		w.specs.Delete(key)
	}
}

// A keptSpec holds the parts of an owner's last spec that event handlers need. Parsing a selector takes fifty times
// as long as matching it, and an orphan is compared with every owner in its namespace.
type keptSpec[C Object] struct {
	resourceVersion string
	selector        labels.Selector
	err             error
	minReady        time.Duration
	rules           replicas.Rules[C]
	groupOf         func(C) string
	limited         bool // MaxDeletions or Update is set, so a pass waits for children that become available
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
