// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
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

// Handlers settle expectations for watch events, and wake owners, which means that they
// ask for a pass. A Controller has Handlers built in. It has no expectations, because
// its passes check themselves what the cache shows. For a loop of your own that records
// in a Store what it creates and deletes, use NewHandlers. With client-go:
//
//	children.AddEventHandler(cache.ResourceEventHandlerFuncs{
//		AddFunc:    func(obj any) { report(h.ChildAdded(obj)) },
//		UpdateFunc: func(old, cur any) { report(h.ChildUpdated(old, cur)) },
//		DeleteFunc: func(obj any) { report(h.ChildDeleted(obj)) },
//	})
//
// Handlers may be called by several goroutines at once, and in any order, because the
// cache of owners may be behind or ahead of the cache of children. An event that comes
// twice settles a creation or deletion once. If a handler is given an Enqueue, it asks
// for passes there. Otherwise it uses the Enqueue given to New or NewHandlers.
//
// An error means that the event was ignored. Either the event has neither a child nor an owner, or
// the Kind is wrong because a child refers to an owner by the right UID but another kind. Log the
// error; trying again is useless. No argument makes a handler panic.
//
// The controller reference of a child names its owner. The kind must be that of the
// owners, and the UIDs must be equal. The cache must have an owner with this name in
// the child's namespace, or in no namespace if Kind.ClusterScoped is set. The API group
// is not compared, so pods made by ReplicaSets of extensions/v1beta1 keep their owner.
//
// Differs from Kubernetes (pkg/controller/replicaset/replica_set.go):
//   - An event settles the expectations of the owner that the reference names even
//     if the cache does not have that owner.
//   - A creation is settled by namespace and name, and a deletion by UID, for every
//     owner that waits for it, even if the child has another owner now.
//   - If an orphan is gone, the owners that select it are woken, because one may have
//     adopted it before the cache showed that.
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

// untyped is a watcher of any types of owners and children.
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
// given another Enqueue. NewHandlers returns an error if owners, store or enqueue is
// nil, or if the Kind can never work.
//
// NewHandlers uses only Owner, Child, ClusterScoped and Spec of the Kind, and only
// Selector, MinReadySeconds and Rules.Ready of the Spec. The last two are for waking an
// owner when a child may have become available. You can omit the handlers of owners if
// other code wakes owners that changed, and forgets the records of owners that are gone.
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

// ChildAdded handles a child that is new to the cache. If the child has an owner, ChildAdded
// settles the creation and wakes that owner. For an orphan, ChildAdded wakes every owner in its
// namespace that selects it, because one of them must adopt it. If several owners select the
// orphan, their users have made a mistake. If the child is being deleted already, for example after
// a restart, its deletion is settled instead.
func (h *Handlers) ChildAdded(obj any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.childAdded(obj, enqueue)
}

// ChildUpdated handles a child that changed. It wakes the owner and, if the owner
// changed, the former owner. If an orphan's labels or owner changed, it wakes every owner
// that selects the orphan. The first update with a deletionTimestamp settles the
// deletion, so a replacement need not wait until the child is gone. If a child became
// ready and its owner has minReadySeconds, the owner is woken again after that time. A
// work queue may drop such a delayed request, because it keeps only the earliest for an
// owner. So each pass should ask for the next one itself, as in a Controller. For pods,
// status.NextAvailabilityCheck returns the delay. Updates with equal resourceVersions are
// a resync and are ignored. See also Options.StatusDelay.
func (h *Handlers) ChildUpdated(old, cur any, q ...Enqueue) error {
	w, enqueue, err := h.to(q)
	if err != nil {
		return err
	}
	return w.childUpdated(old, cur, enqueue)
}

// ChildDeleted handles a child that left the cache. It settles the deletion and wakes
// the owner. obj is a child or a tombstone, which is client-go's
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

// OwnerUpdated wakes an owner, even if nothing changed. A resync, with equal
// resourceVersions, also wakes it. If the UIDs differ, the owner was deleted and
// created again with the same name. OwnerUpdated then forgets the old one, as
// OwnerDeleted does.
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

// to returns the watcher and the Enqueue for an event.
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

// watcher settles records and wakes owners when events come. It is all that a
// Controller and Handlers have in common.
type watcher[O, C Object] struct {
	kind     Kind[O, C]
	from     OwnerCache[O]
	store    *expectations.Store[expectations.Key] // of Handlers; nil in a Controller, which has ledgers
	specs    keptSpecs[C]
	newest   newest
	listener listener[O, C]
	// statusDelay is how long an update waits if it can change only a status.
	statusDelay time.Duration
}

// A listener learns what events show, before a pass is asked for.
type listener[O, C Object] interface {
	childLeft(owner expectations.Key, child types.UID) // it is being deleted, has another owner now, or left the cache
	childTaken(owner expectations.Key, child C)        // another owner has taken it over
	childEnded(child types.UID)                        // a DELETED event has ended it
	becameReady(owner expectations.Key, child C)
	cacheWentBack(owner expectations.Key) // a child of the owner went back to an older version
	forget(owner expectations.Key)        // it left the cache
	// isOwnWrite reports whether an update of an owner shows only the Controller's own
	// write. If the write is still under way, isOwnWrite may return true, and wake is
	// called later if the update shows something else.
	isOwnWrite(was, cur O, wake func()) bool
}

// storeOnly is the listener of Handlers, which record in their Store what they wait for.
type storeOnly[O, C Object] struct {
	*expectations.Store[expectations.Key]
}

func (s storeOnly[O, C]) forget(owner expectations.Key)       { s.Forget(owner) }
func (storeOnly[O, C]) childLeft(expectations.Key, types.UID) {}
func (storeOnly[O, C]) childTaken(expectations.Key, C)        {}
func (storeOnly[O, C]) childEnded(types.UID)                  {}
func (storeOnly[O, C]) becameReady(expectations.Key, C)       {}
func (storeOnly[O, C]) cacheWentBack(expectations.Key)        {}
func (storeOnly[O, C]) isOwnWrite(O, O, func()) bool          { return false }

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
		e.departed(was) // the cache missed some events
		e.added(child)
	case child.GetDeletionTimestamp() != nil:
		e.deleting(was, child)
	default:
		e.changed(was, child)
	}
	return nil
}

func (w *watcher[O, C]) childDeleted(obj any, q Enqueue) error {
	child, isTombstone, err := unwrap(obj, w.childOf)
	if err != nil {
		return err
	}
	w.newest.saw(child)
	if !isTombstone { // a tombstone says only that a list lacked the child
		w.listener.childEnded(child.GetUID())
	}
	events[O, C]{w, q}.departed(child)
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
	case w.listener.isOwnWrite(was, owner, func() { e.wake(owner, 0) }):
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

// events is a watcher with the Enqueue where its events ask for passes.
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
	e.settleCreation(c)
	switch {
	case metav1.GetControllerOfNoCopy(c) == nil:
		e.wakeSelecting(c)
	case found:
		e.wake(owner, 0)
	}
}

// settleCreation settles the creation of c for every owner in the namespace that waits
// for that name. Usually that is the owner of c, or none.
func (e events[O, C]) settleCreation(c C) {
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

// deleting handles an update of a child that is being deleted. The old version counts
// only if the labels or the owner changed (V7).
func (e events[O, C]) deleting(was, c C) {
	e.childDeleted(c)
	if !maps.Equal(was.GetLabels(), c.GetLabels()) || !sameOwner(metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(c)) {
		e.childDeleted(was)
	}
}

// departed handles a child that left the cache.
func (e events[O, C]) departed(c C) {
	e.childDeleted(c)
	if metav1.GetControllerOfNoCopy(c) != nil {
		return
	}
	for _, owner := range e.selecting(c) {
		e.listener.childLeft(expectations.KeyOf(owner), object.ID(c))
		e.wake(owner, 0)
	}
}

// wentBack notes for the old and the new owner of a child that the cache went back.
func (e events[O, C]) wentBack(was, c C) {
	former, _, _ := e.ownerOf(was)
	e.listener.cacheWentBack(former)
	if key, _, _ := e.ownerOf(c); key != former {
		e.listener.cacheWentBack(key)
	}
}

// childDeleted settles the deletion for every owner that waits for it. Usually that is the
// owner of c, or none.
func (e events[O, C]) childDeleted(c C) {
	ownKey, owner, found := e.ownerOf(c)
	id := object.ID(c)
	e.settleCreation(c) // a child that is deleted was created
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

// changed handles an update of a child that is not being deleted.
func (e events[O, C]) changed(was, c C) {
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
	becameReady := (spec.minReady > 0 || spec.rules.ReadyWithin > 0) && spec.rules.Ready != nil && !spec.rules.Ready(was) && spec.rules.Ready(c)
	if becameReady {
		e.listener.becameReady(key, c) // before the wake, because the pass uses it
	}
	if e.statusDelay > 0 && spec.onlyStatusChanges(was, c) {
		after = e.statusDelay
	}
	e.wake(owner, after)
	if becameReady && spec.minReady > 0 {
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
	e.specs.forget(key)
	e.listener.forget(key)
	e.wake(owner, 0)
}

// ownerOf returns the key of the owner that c's controller reference names, and the
// owner itself if the cache has it. Without such a reference the key is zero, which is
// the key of no owner.
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

// namespaceOf returns the namespace of the owners of a child.
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

// specOf returns the spec of this version of the owner. If the owner has a UID and a
// version, specOf calls Kind.Spec once for it, unless that returns an error other than a
// refusal.
func (w *watcher[O, C]) specOf(owner O) keptSpec[C] {
	key, version := expectations.KeyOf(owner), owner.GetResourceVersion()
	if kept, ok := w.specs.get(key); ok && kept.resourceVersion == version {
		return kept
	}
	spec, err := w.kind.Spec(owner)
	kept := keptSpec[C]{resourceVersion: version, selector: spec.Selector, err: err}
	if err == nil {
		kept.minReady, kept.rules = time.Duration(spec.MinReadySeconds)*time.Second, spec.Rules.Complete()
		kept.limited = spec.MaxDeletions != nil
	}
	var refused *replicas.RefusedError
	if key.UID != "" && version != "" && (err == nil || errors.As(err, &refused)) {
		if w.specs.keep(key, kept) {
			w.sweepSpecs()
		}
	}
	return kept
}

// sweepSpecs drops the specs of owners that are gone, because the event of their deletion
// may have come before the spec was kept, or never. It is called when there are twice as
// many as the last time, so a new spec costs at most two looks.
func (w *watcher[O, C]) sweepSpecs() {
	left := 0
	for _, key := range w.specs.keys() {
		if _, found := w.find(key); found {
			left++
			continue
		}
		w.specs.forget(key)
	}
	w.specs.fill(left)
}

func (e events[O, C]) wakeSelecting(orphan C) {
	for _, owner := range e.selecting(orphan) {
		e.wake(owner, 0)
	}
}

// selecting returns the owners that may want to adopt an orphan.
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

// childOf returns the child of an event. A reference to another kind is an error if the
// UID shows that it means one of our owners.
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
		return c, fmt.Errorf("controller: %q is controlled by %s %q, which is one of the owners, but their kind is %s",
			object.Name(c), ref.Kind, ref.Name, w.kind.Owner.Kind)
	}
	return c, nil
}

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

// tombstone has the fields of client-go's cache.DeletedFinalStateUnknown, which is the
// last known state of an object if the cache missed the event of its deletion.
type tombstone struct {
	Key string
	Obj any
}

// unwrap converts the object of a deletion, or the one in its tombstone.
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

// keptSpecs has the parts that events need of the last specs of owners. An orphan is
// compared with every owner of its namespace, and parsing a selector takes fifty times
// as long as matching. The zero value is ready to use.
type keptSpecs[C Object] struct {
	mu   sync.Mutex
	of   map[expectations.Key]keptSpec[C]
	full int // with more specs than this, those of owners that are gone are dropped
}

// fewSpecs is how many specs are kept without a look at which owners still exist.
const fewSpecs = 100

type keptSpec[C Object] struct {
	resourceVersion string
	selector        labels.Selector
	err             error
	minReady        time.Duration
	rules           replicas.Rules[C]
	limited         bool // MaxDeletions is set
}

func (s *keptSpecs[C]) get(owner expectations.Key) (keptSpec[C], bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, ok := s.of[owner]
	return kept, ok
}

// keep keeps a spec, and reports whether there are so many that some owners may be
// gone. It reports that once, until fill is called.
func (s *keptSpecs[C]) keep(owner expectations.Key, kept keptSpec[C]) (full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of, s.full = make(map[expectations.Key]keptSpec[C]), fewSpecs
	}
	s.of[owner] = kept
	if full = len(s.of) > s.full; full {
		s.full = math.MaxInt
	}
	return full
}

// fill sets how many specs are of owners that still exist.
func (s *keptSpecs[C]) fill(owners int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = max(2*owners, fewSpecs)
}

func (s *keptSpecs[C]) keys() []expectations.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}

func (s *keptSpecs[C]) forget(owner expectations.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, owner)
}

// newest is the newest resourceVersion of a child in an event.
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
