package controller

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// ChildAdded and the five methods below turn watch events into expectations that
// are settled and owners that are woken. They are event handlers as they are; with
// client-go:
//
//	children.AddEventHandler(cache.ResourceEventHandlerFuncs{
//		AddFunc:    func(obj any) { report(c.ChildAdded(obj)) },
//		UpdateFunc: func(old, cur any) { report(c.ChildUpdated(old, cur)) },
//		DeleteFunc: func(obj any) { report(c.ChildDeleted(obj)) },
//	})
//
// They may be called from any number of goroutines: the caches of children and of
// owners need not know of each other. An event that is repeated settles a deletion
// or a creation once. Passes are asked for at q, if one is given, and else where
// New was told.
//
// An error says that an event was ignored because it holds no child or owner, or
// because the Kind is not that of the owners: a child's reference names another
// kind, yet has the UID of one of them. It is for the log: trying again is
// useless. Nothing that is passed in panics.
//
// A child's owner is what its controller reference names, if the kind is the
// owners', the cache knows the name in the child's namespace, or in none if
// Kind.ClusterScoped is set, and the UIDs are equal. The API group is not compared, just as a claim goes by UID alone: pods
// that ReplicaSets of extensions/v1beta1 made are still theirs.
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
//
// ChildAdded handles a child that is new to the cache. One that has an owner
// settles a creation, and wakes that owner alone. An orphan wakes every owner in
// its namespace that selects it: more than one is the users' mistake, but one of
// them must adopt it. A child that is being deleted already, as seen after a
// restart, is handled as by ChildDeleted.
func (c *Controller) ChildAdded(obj any, q ...Enqueue) error {
	return c.do().childAdded(obj, c.queue(q))
}

// ChildUpdated handles a child that changed. It wakes the owner, the one before
// it, and for an orphan whose labels or controller changed every owner that
// selects it. The first update with a deletionTimestamp settles the deletion: a
// replacement need not wait until the child is gone. An owner with
// minReadySeconds is woken once more after that time, when a child that just
// became ready may have become available. Equal resourceVersions are a resync,
// and ignored. See ChildAdded.
func (c *Controller) ChildUpdated(old, cur any, q ...Enqueue) error {
	return c.do().childUpdated(old, cur, c.queue(q))
}

// ChildDeleted handles a child that left the cache: its deletion is settled, and
// its owner woken. obj is a child or a tombstone: a cache.DeletedFinalStateUnknown
// of client-go, which is recognised by its shape, or any other struct, or pointer
// to one, with just the fields Key string and Obj any. See ChildAdded.
func (c *Controller) ChildDeleted(obj any, q ...Enqueue) error {
	return c.do().childDeleted(obj, c.queue(q))
}

// OwnerAdded wakes an owner that is new to the cache. See ChildAdded.
func (c *Controller) OwnerAdded(obj any, q ...Enqueue) error {
	return c.do().ownerAdded(obj, c.queue(q))
}

// OwnerUpdated wakes an owner, whether anything changed or not. If the UIDs
// differ, the old one was deleted and made again under its name: that is handled
// as by OwnerDeleted first. See ChildAdded.
func (c *Controller) OwnerUpdated(old, cur any, q ...Enqueue) error {
	return c.do().ownerUpdated(old, cur, c.queue(q))
}

// OwnerDeleted forgets an owner that left the cache and wakes its name, under
// which there may be another one. obj is an owner or a tombstone; see
// ChildDeleted.
func (c *Controller) OwnerDeleted(obj any, q ...Enqueue) error {
	return c.do().ownerDeleted(obj, c.queue(q))
}

func (c *Controller) queue(q []Enqueue) Enqueue {
	for _, enqueue := range q {
		if enqueue != nil {
			return enqueue
		}
	}
	if c == nil {
		return nil
	}
	return c.enqueue
}

func (r *reconciler[O, C]) childAdded(obj any, q Enqueue) error {
	child, err := r.child(obj)
	if err == nil {
		events[O, C]{r, q}.added(child)
	}
	return err
}

func (r *reconciler[O, C]) childUpdated(old, cur any, q Enqueue) error {
	was, err := r.child(old)
	if err != nil {
		return err
	}
	child, err := r.child(cur)
	if err != nil {
		return err
	}
	e := events[O, C]{r, q}
	switch {
	case child.GetResourceVersion() != "" && was.GetResourceVersion() == child.GetResourceVersion(): // V6
	case was.GetUID() != child.GetUID():
		e.deleted(was, true)
		e.added(child)
	case child.GetDeletionTimestamp() != nil:
		e.deleting(was, child)
	default:
		e.changed(was, child)
	}
	return nil
}

func (r *reconciler[O, C]) childDeleted(obj any, q Enqueue) error {
	child, err := unwrap(obj, r.child)
	if err == nil {
		events[O, C]{r, q}.deleted(child, true)
	}
	return err
}

func (r *reconciler[O, C]) ownerAdded(obj any, q Enqueue) error {
	owner, err := asObject[O](obj, "owner")
	if err == nil {
		events[O, C]{r, q}.wake(owner, 0)
	}
	return err
}

func (r *reconciler[O, C]) ownerUpdated(old, cur any, q Enqueue) error {
	was, err := asObject[O](old, "owner")
	if err != nil {
		return err
	}
	owner, err := asObject[O](cur, "owner")
	if err != nil {
		return err
	}
	e := events[O, C]{r, q}
	if was.GetUID() != owner.GetUID() {
		e.ownerDeleted(was)
	}
	r.specs.forget(expectations.KeyOf(owner)) // a restored server gives versions a second time
	e.wake(owner, 0)
	return nil
}

func (r *reconciler[O, C]) ownerDeleted(obj any, q Enqueue) error {
	owner, err := unwrap(obj, func(obj any) (O, error) { return asObject[O](obj, "owner") })
	if err == nil {
		events[O, C]{r, q}.ownerDeleted(owner)
	}
	return err
}

// events are a reconciler's, and where the passes go that they ask for.
type events[O, C Object] struct {
	*reconciler[O, C]
	enqueue Enqueue
}

func (e events[O, C]) added(c C) {
	if c.GetDeletionTimestamp() != nil {
		e.deleted(c, false)
		return
	}
	key, owner, found := e.ownerOf(c)
	e.pending.CreationObserved(key, c.GetName())
	e.settleCreation(c)
	switch {
	case metav1.GetControllerOfNoCopy(c) == nil:
		e.wakeSelecting(c)
	case found:
		e.wake(owner, 0)
	}
}

// settleCreation settles the creation by that name of everybody in the namespace
// who waits for it: as a rule that is the owner, or nobody.
func (e events[O, C]) settleCreation(c C) {
	name := c.GetName()
	for _, key := range e.pending.OwnersOfCreation(name) {
		if key.Namespace == e.namespaceOf(c) && e.pending.CreationObserved(key, name) {
			e.wakeKey(key)
		}
	}
}

// deleting handles an update of a child that is being deleted. Its former self
// counts only if the labels changed (V7).
func (e events[O, C]) deleting(was, c C) {
	e.deleted(c, false)
	if !maps.Equal(was.GetLabels(), c.GetLabels()) {
		e.deleted(was, false)
	}
}

// deleted settles the deletion for everybody who waits for it: as a rule that
// is the owner, or nobody. gone tells that the child has left the cache.
func (e events[O, C]) deleted(c C, gone bool) {
	ownKey, owner, found := e.ownerOf(c)
	id := object.ID(c)
	if gone {
		e.left(ownKey, id)
	}
	e.settleCreation(c) // it was created
	e.pending.DeletionObserved(ownKey, id)
	for _, key := range e.pending.OwnersOfDeletion(id) {
		if e.pending.DeletionObserved(key, id) {
			e.wakeKey(key)
		}
	}
	if found {
		e.wake(owner, 0)
	}
	if gone && metav1.GetControllerOfNoCopy(c) == nil {
		for _, owner := range e.selecting(c) {
			e.left(expectations.KeyOf(owner), id)
			e.wake(owner, 0)
		}
	}
}

// left notes for an owner that a child is gone from the cache.
func (e events[O, C]) left(key expectations.Key, id types.UID) {
	if state := e.owners.get(key); state != nil {
		state.proven.left(id)
	}
}

// changed handles an update of a child that is not being deleted.
func (e events[O, C]) changed(was, c C) {
	before, now := metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(c)
	moved := !sameOwner(before, now)
	if moved {
		if _, owner, found := e.ownerOf(was); found {
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
	_, owner, found := e.ownerOf(c)
	if !found {
		return
	}
	e.wake(owner, 0)
	spec := e.specOf(owner)
	if spec.minReady > 0 && spec.ready != nil && !spec.ready(was) && spec.ready(c) {
		e.wake(owner, spec.minReady)
	}
}

func (e events[O, C]) ownerDeleted(owner O) {
	key := expectations.KeyOf(owner)
	e.specs.forget(key)
	e.forget(key)
	e.wake(owner, 0)
}

// ownerOf returns the key of the owner that c's controller reference names, and
// the owner itself, if it can be resolved. The key is zero, which is no owner's,
// if there is no such reference.
func (r *reconciler[O, C]) ownerOf(c C) (key expectations.Key, owner O, found bool) {
	ref := metav1.GetControllerOfNoCopy(c)
	if ref == nil || ref.Kind != r.kind.Owner.Kind || ref.UID == "" && object.GroupOf(ref) != r.kind.Owner.Group {
		return key, owner, false
	}
	key = r.keyOf(c, ref)
	owner, found = r.find(key)
	return key, owner, found
}

// keyOf returns the key of the owner that a reference of c names.
func (r *reconciler[O, C]) keyOf(c metav1.Object, ref *metav1.OwnerReference) expectations.Key {
	return expectations.Key{NamespacedName: types.NamespacedName{Namespace: r.namespaceOf(c), Name: ref.Name}, UID: ref.UID}
}

// find returns the owner with that key.
func (r *reconciler[O, C]) find(key expectations.Key) (owner O, found bool) {
	owner, err := r.cache.Owner(context.Background(), key.NamespacedName)
	if err != nil || object.IsNil(owner) || owner.GetUID() != key.UID {
		return owner, false
	}
	return owner, true
}

func (e events[O, C]) wakeSelecting(orphan C) {
	for _, owner := range e.selecting(orphan) {
		e.wake(owner, 0)
	}
}

// selecting returns the owners that may want to adopt an orphan.
func (e events[O, C]) selecting(orphan C) []O {
	owners, err := e.cache.Owners(context.Background(), e.namespaceOf(orphan))
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

// child returns the child of an event. Owners of other kinds are told from ours
// under a wrong name: the UID knows better.
func (r *reconciler[O, C]) child(obj any) (C, error) {
	c, err := asObject[C](obj, "child")
	if err != nil {
		return c, err
	}
	ref := metav1.GetControllerOfNoCopy(c)
	if ref == nil || ref.Kind == r.kind.Owner.Kind || ref.UID == "" {
		return c, nil
	}
	if _, found := r.find(r.keyOf(c, ref)); found {
		return c, fmt.Errorf("controller: %q is controlled by %s %q, which is one of the owners, but their kind is %s",
			object.Name(c), ref.Kind, ref.Name, r.kind.Owner.Kind)
	}
	return c, nil
}

// asObject returns the object of an event.
func asObject[T Object](obj any, what string) (T, error) {
	t, ok := obj.(T)
	switch {
	case !ok:
		return t, fmt.Errorf("controller: %T is no %s: want %s", obj, what, reflect.TypeFor[T]())
	case object.IsNil(t):
		return t, fmt.Errorf("controller: %s is nil", what)
	}
	return t, nil
}

// tombstone has the shape of client-go's cache.DeletedFinalStateUnknown: what a
// cache holds of an object whose deletion it was not told of.
type tombstone struct {
	Key string
	Obj any
}

// unwrap converts the object of a deletion, or the one in its tombstone.
func unwrap[T any](obj any, convert func(any) (T, error)) (T, error) {
	shape, v := reflect.TypeFor[tombstone](), reflect.Indirect(reflect.ValueOf(obj))
	if !v.IsValid() || !v.CanConvert(shape) {
		return convert(obj)
	}
	t, _ := reflect.TypeAssert[tombstone](v.Convert(shape))
	inner, err := convert(t.Obj)
	if err != nil {
		return inner, fmt.Errorf("%w, in the tombstone of %q", err, t.Key)
	}
	return inner, nil
}
