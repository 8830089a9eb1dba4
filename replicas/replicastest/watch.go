// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A View is the state of a cluster as one controller has seen it: a cache for each kind, and a queue of the events that
// have not arrived yet. At first, the queue has one event for each object in the cluster, as after a list. A View is a
// Part.
type View[O Object[O], C Object[C]] struct {
	// Cache shows the objects whose events have arrived. Its method Related returns the children of all owners that
	// have the same controller as the given owner, such as the pods of all ReplicaSets of one Deployment.
	controller.Cache[O, C]

	OwnerWatch *Stream[O]
	ChildWatch *Stream[C]

	selects func(owner O) (labels.Selector, error)
	hidden
}

// NewView returns a View with empty caches, and starts to send the cluster's events to the View.
func (c *Cluster[O, C]) NewView() *View[O, C] {
	selects := func(owner O) (labels.Selector, error) {
		spec, err := c.kind.Spec(owner)
		return spec.Selector, err
	}
	v := &View[O, C]{OwnerWatch: watch(c.owners), ChildWatch: watch(c.children), selects: selects}
	v.Cache, v.hidden = seen[O, C]{v}, inside.Hide((*insideView[O, C])(v))
	return v
}

// Stop ends both watches. Events that have not arrived are lost, and the cluster sends no further ones.
func (v *View[O, C]) Stop() {
	v.ChildWatch.stop()
	v.OwnerWatch.stop()
}

// synced reports whether the first list of each kind has arrived.
func (v *View[O, C]) synced() bool { return v.ChildWatch.synced && v.OwnerWatch.synced }

type insideView[O Object[O], C Object[C]] View[O, C]

func (v *insideView[O, C]) Synced() bool { return (*View[O, C])(v).synced() }

func (v *insideView[O, C]) ListFrom(view inside.View, d time.Duration) bool {
	old, ok := view.(*insideView[O, C])
	if !ok || old.OwnerWatch.broken || old.ChildWatch.broken {
		return false
	}
	v.OwnerWatch.listFrom(old.OwnerWatch, d)
	v.ChildWatch.listFrom(old.ChildWatch, d)
	return true
}

// Intact returns an error if an object in a cache was changed, for example by a function of your Kind, or if an event
// handler returned one. Call it at the end of a test.
func (v *View[O, C]) Intact() error {
	return errors.Join(v.ChildWatch.intact(), v.OwnerWatch.intact())
}

// Handle sets event handlers that pass all later events to the controller.
func (v *View[O, C]) Handle(c *controller.Controller) {
	v.ChildWatch.OnAdd = func(obj any) error { return c.ChildAdded(obj) }
	v.ChildWatch.OnUpdate = func(old, obj any) error { return c.ChildUpdated(old, obj) }
	v.ChildWatch.OnDelete = func(obj any) error { return c.ChildDeleted(obj) }
	v.OwnerWatch.OnAdd = func(obj any) error { return c.OwnerAdded(obj) }
	v.OwnerWatch.OnUpdate = func(old, obj any) error { return c.OwnerUpdated(old, obj) }
	v.OwnerWatch.OnDelete = func(obj any) error { return c.OwnerDeleted(obj) }
}

// seen is the Cache of a View.
type seen[O Object[O], C Object[C]] struct{ *View[O, C] }

func (v seen[O, C]) Owner(_ context.Context, key types.NamespacedName) (O, error) {
	owner, ok := v.OwnerWatch.cache.get(key.Namespace, key.Name)
	if !ok {
		return owner, apierrors.NewNotFound(v.OwnerWatch.table.resource, key.Name)
	}
	return owner, nil
}

func (v seen[O, C]) Owners(_ context.Context, namespace string) ([]O, error) {
	return v.OwnerWatch.In(namespace), nil
}

func (v seen[O, C]) Children(_ context.Context, owner O) ([]C, error) {
	if object.IsNil(owner) {
		return nil, errNil
	}
	return v.ChildWatch.In(owner.GetNamespace()), nil
}

func (v seen[O, C]) Related(_ context.Context, owner O) ([]C, error) {
	if object.IsNil(owner) {
		return nil, errNil
	}
	namespace := owner.GetNamespace()
	return replicas.Related(owner, v.OwnerWatch.In(namespace), v.selects, v.ChildWatch.In(namespace)), nil
}

func (v seen[O, C]) OwnersVersion() string { return v.OwnerWatch.version }

func (v seen[O, C]) ChildrenVersion() string { return v.ChildWatch.version }

// Due returns the time of the next event, and whether there is one.
func (v *View[O, C]) Due() (time.Time, bool) {
	child, ok := v.ChildWatch.due()
	if owner, other := v.OwnerWatch.due(); other && (!ok || !owner.After(child)) {
		return owner, true
	}
	return child, ok
}

// Step delivers the next event if it is due. If an event of each kind is due, the owner's comes first.
func (v *View[O, C]) Step() {
	due, _ := v.Due()
	if owner, ok := v.OwnerWatch.due(); ok && owner.Equal(due) {
		v.OwnerWatch.step()
		return
	}
	v.ChildWatch.step()
}

// A Stream is the watch of one kind, and the cache that this watch fills. Events arrive in the order of the writes. As
// in an informer, an event changes the cache before its handler is called. Do not change objects in the cache.
type Stream[T Object[T]] struct {
	// Lag is the delay with which new events arrive, unless an earlier event arrives later: none overtakes another.
	Lag time.Duration
	// OnAdd, OnUpdate and OnDelete are the event handlers, which may be nil. Their arguments have type T, but that of
	// OnDelete can also be a Tombstone that contains a T. View.Intact returns their first error.
	OnAdd    func(obj any) error
	OnUpdate func(old, obj any) error
	OnDelete func(obj any) error

	table   *table[T]
	cache   index[T]
	arrived index[T] // the cached objects as they arrived, to detect changes in the cache
	version string
	synced  bool // the first list has arrived
	broken  bool
	hung    bool
	queue   []event[T]
	last    event[T]
	err     error // the first error of a handler or of compare
	hidden
}

// A Tombstone stands for a deleted object whose deletion the watch has missed. Obj is its last known state.
type Tombstone struct {
	Key string
	Obj any
}

type event[T any] struct {
	object  T
	is      change
	version string // resourceVersion of the cache after the event; "" means no change
	listed  bool   // the event is the last event of a list
	due     time.Time
}

type change uint8

const (
	there  change = iota // the object exists, and the event contains its state
	gone                 // the object was removed
	missed               // the object was removed while the watch was down
)

func watch[T Object[T]](t *table[T]) *Stream[T] {
	s := &Stream[T]{table: t}
	s.hidden = inside.Hide((*insideStream[T])(s))
	t.streams = append(t.streams, s)
	s.Relist()
	return s
}

func (s *Stream[T]) stop() {
	s.queue = nil
	s.table.streams = slices.DeleteFunc(s.table.streams, func(other *Stream[T]) bool { return other == s })
}

// Break breaks the watch. Events that have not arrived are lost, and so are all further ones until Relist is called.
func (s *Stream[T]) Break() { s.queue, s.broken = nil, true }

// Hang makes the watch hang: it returns no error, but no event arrives until Resume or Relist is called. A controller
// makes no pass before its first list has arrived in full. A real informer has this list in full or not at all, so to
// test a new controller whose watch hangs, deliver the list first.
func (s *Stream[T]) Hang() { s.hung = true }

// Resume ends a hang. The delayed events arrive as soon as their Lag is over.
func (s *Stream[T]) Resume() { s.hung = false }

// Relist lists all objects and starts a new watch from that list. Every object arrives again, even one that has not
// changed. A Tombstone arrives for each object that is in the cache but no longer exists.
func (s *Stream[T]) Relist() {
	s.queue, s.broken, s.hung = nil, false, false
	for _, obj := range s.table.rows {
		s.receive(event[T]{object: obj})
	}
	for _, obj := range s.cache {
		if _, ok := s.table.rows.get(obj.GetNamespace(), obj.GetName()); !ok {
			s.receive(event[T]{object: obj, is: missed})
		}
	}
	// The cache is as new as the list only when all of it has arrived, so the version comes with the last event.
	version := strconv.FormatUint(s.table.server.latest(), 10)
	if n := len(s.queue); n > 0 {
		s.queue[n-1].listed, s.queue[n-1].version = true, version
		return
	}
	// No event comes of an empty list.
	s.synced, s.version = true, version
}

func (s *Stream[T]) listFrom(old *Stream[T], d time.Duration) {
	s.queue, s.synced, s.version, s.Lag = slices.Clone(old.queue), false, "", d
	n := 1 + slices.IndexFunc(s.queue, func(e event[T]) bool { return e.listed })
	if n == 0 { // the list was empty
		s.synced, s.version = true, old.version
	}
	// The list is answered at once, from an API server that is behind. What this server has yet to learn comes later.
	for i := range s.queue {
		s.queue[i].due = s.table.server.now()
		if i >= n {
			s.queue[i].due = s.queue[i].due.Add(d)
		}
	}
}

// receive queues an event. The cache gets its own copy of the object when the event arrives.
func (s *Stream[T]) receive(e event[T]) {
	if s.broken {
		return
	}
	e.due = s.table.server.now().Add(s.Lag)
	if n := len(s.queue); n > 0 && s.queue[n-1].due.After(e.due) {
		// The Lag was longer when that event was sent.
		e.due = s.queue[n-1].due
	}
	s.queue = append(s.queue, e)
}

// Get returns the cached object with this namespace and name, and whether there is one.
func (s *Stream[T]) Get(namespace, name string) (T, bool) { return s.cache.get(namespace, name) }

// In returns the cached objects in a namespace, sorted by namespace and name. "" means all
// namespaces.
func (s *Stream[T]) In(namespace string) []T { return s.cache.in(namespace) }

// due returns the time of the next event. There is none while the watch hangs.
func (s *Stream[T]) due() (time.Time, bool) {
	if len(s.queue) == 0 || s.hung {
		return time.Time{}, false
	}
	return s.queue[0].due, true
}

func (s *Stream[T]) step() {
	if due, ok := s.due(); ok && !due.After(s.table.server.now()) {
		s.next()
	}
}

// next delivers the next event, due or not.
func (s *Stream[T]) next() {
	if len(s.queue) == 0 || s.hung {
		return
	}
	s.last = s.queue[0]
	s.queue = s.queue[1:]
	s.deliver(s.last)
}

type insideStream[T Object[T]] Stream[T]

func (s *insideStream[T]) Broken() bool           { return s.broken }
func (s *insideStream[T]) Hung() bool             { return s.hung }
func (s *insideStream[T]) Version() string        { return s.version }
func (s *insideStream[T]) Due() (time.Time, bool) { return (*Stream[T])(s).due() }
func (s *insideStream[T]) Pending() int           { return len(s.queue) }
func (s *insideStream[T]) Deliver()               { (*Stream[T])(s).next() }

func (s *insideStream[T]) Lose() {
	if len(s.queue) > 0 && !s.queue[0].listed {
		// Without the last event of a list, the cache would never be synced.
		s.queue = s.queue[1:]
	}
}

func (s *insideStream[T]) Repeat() {
	if s.last.version != "" && s.last.is != missed {
		(*Stream[T])(s).deliver(s.last)
	}
}

func (s *insideStream[T]) Replay(every time.Duration) {
	s.hung = false
	for i := range s.queue {
		s.queue[i].due = s.table.server.now().Add(time.Duration(i+1) * every)
	}
}

func (s *Stream[T]) deliver(e event[T]) {
	s.synced = s.synced || e.listed
	if e.version != "" {
		s.version = e.version
	}
	if err := s.tell(e); err != nil && s.err == nil {
		s.err = fmt.Errorf("replicastest: event handler: %w", err)
	}
}

// tell applies an event to the cache and calls the event handler.
func (s *Stream[T]) tell(e event[T]) error {
	old, known := s.cache.get(e.object.GetNamespace(), e.object.GetName())
	if e.is != there {
		return s.tellGone(e)
	}
	// The object that the event replaces is seen here for the last time.
	s.checkUnchanged(e.object)
	// The controller gets a copy, so e.object shows later whether it was changed in the cache.
	obj := e.object.DeepCopy()
	s.cache.put(obj)
	s.arrived.put(e.object)
	switch {
	case known && s.OnUpdate != nil:
		return s.OnUpdate(old, obj)
	case !known && s.OnAdd != nil:
		return s.OnAdd(obj)
	}
	return nil
}

func (s *Stream[T]) tellGone(e event[T]) error {
	s.checkUnchanged(e.object)
	s.cache.drop(e.object)
	s.arrived.drop(e.object)
	switch {
	case s.OnDelete == nil:
		return nil
	case e.is == missed:
		// No event has brought the last state, so the informer passes on what it has.
		key := types.NamespacedName{Namespace: e.object.GetNamespace(), Name: e.object.GetName()}
		return s.OnDelete(Tombstone{Key: key.String(), Obj: e.object.DeepCopy()})
	}
	return s.OnDelete(e.object.DeepCopy())
}

// checkUnchanged records an error if the cached object was changed since it arrived.
func (s *Stream[T]) checkUnchanged(of T) {
	namespace, name := of.GetNamespace(), of.GetName()
	obj, known := s.cache.get(namespace, name)
	if arrived, _ := s.arrived.get(namespace, name); known && s.err == nil {
		s.err = s.compare(obj, arrived)
	}
}

func (s *Stream[T]) intact() error {
	for i, obj := range s.cache {
		if s.err == nil {
			s.err = s.compare(obj, s.arrived[i])
		}
	}
	return s.err
}

func (s *Stream[T]) compare(obj, arrived T) error {
	if same(obj, arrived) {
		return nil
	}
	return fmt.Errorf("replicastest: %s %q was changed in the cache", s.table.kind.Kind, obj.GetName())
}
