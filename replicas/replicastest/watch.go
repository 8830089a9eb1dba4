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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A View is what one controller has seen of a cluster: a cache for each kind, and
// the events that have not arrived yet. At first all objects of the cluster are
// such events, as those of a list. It is a Part.
type View[O Object[O], C Object[C]] struct {
	OwnerWatch *Stream[O]
	ChildWatch *Stream[C]

	selects func(owner O) (labels.Selector, error)
}

// A PodView is a View of ReplicaSets and pods.
type PodView = View[*appsv1.ReplicaSet, *corev1.Pod]

var _ controller.Cache[*appsv1.ReplicaSet, *corev1.Pod] = (*PodView)(nil)

// NewView returns an empty view. The cluster sends its events to it from now on.
func (c *Cluster[O, C]) NewView() *View[O, C] {
	selects := func(owner O) (labels.Selector, error) {
		spec, err := c.kind.Spec(owner)
		return spec.Selector, err
	}
	return &View[O, C]{OwnerWatch: watch(c.owners), ChildWatch: watch(c.children), selects: selects}
}

// Stop ends both watches: events that have not arrived are lost, and no more are
// sent.
func (v *View[O, C]) Stop() {
	v.ChildWatch.stop()
	v.OwnerWatch.stop()
}

// Synced reports whether the first list of each kind has arrived. A controller must
// not act before.
func (v *View[O, C]) Synced() bool { return v.ChildWatch.synced && v.OwnerWatch.synced }

// Intact returns an error if an object in a cache was changed, for example by a function
// of your Kind, or if an event handler returned an error. Check it at the end of a test.
func (v *View[O, C]) Intact() error {
	return errors.Join(v.ChildWatch.intact(), v.OwnerWatch.intact())
}

// Handle passes all events to a controller from now on.
func (v *View[O, C]) Handle(c *controller.Controller) {
	v.ChildWatch.OnAdd = func(obj any) error { return c.ChildAdded(obj) }
	v.ChildWatch.OnUpdate = func(old, obj any) error { return c.ChildUpdated(old, obj) }
	v.ChildWatch.OnDelete = func(obj any) error { return c.ChildDeleted(obj) }
	v.OwnerWatch.OnAdd = func(obj any) error { return c.OwnerAdded(obj) }
	v.OwnerWatch.OnUpdate = func(old, obj any) error { return c.OwnerUpdated(old, obj) }
	v.OwnerWatch.OnDelete = func(obj any) error { return c.OwnerDeleted(obj) }
}

// Owner returns an owner as the cache has it.
func (v *View[O, C]) Owner(_ context.Context, key types.NamespacedName) (O, error) {
	owner, ok := v.OwnerWatch.Get(key.Namespace, key.Name)
	if !ok {
		return owner, apierrors.NewNotFound(v.OwnerWatch.table.resource, key.Name)
	}
	return owner, nil
}

// Owners returns the owners of a namespace as the cache has them.
func (v *View[O, C]) Owners(_ context.Context, namespace string) ([]O, error) {
	return v.OwnerWatch.In(namespace), nil
}

// Children returns the children of an owner's namespace as the cache has them.
func (v *View[O, C]) Children(_ context.Context, owner O) ([]C, error) {
	if object.IsNil(owner) {
		return nil, errNil
	}
	return v.ChildWatch.In(owner.GetNamespace()), nil
}

// Related returns the children of the owners that have the same controller, such
// as the ReplicaSets of one Deployment, as the caches have them.
func (v *View[O, C]) Related(_ context.Context, owner O) ([]C, error) {
	if object.IsNil(owner) {
		return nil, errNil
	}
	namespace := owner.GetNamespace()
	return replicas.Related(owner, v.OwnerWatch.In(namespace), v.selects, v.ChildWatch.In(namespace)), nil
}

// OwnersVersion returns the version up to which owners have been seen.
func (v *View[O, C]) OwnersVersion() string { return v.OwnerWatch.Version() }

// ChildrenVersion returns the version up to which children have been seen.
func (v *View[O, C]) ChildrenVersion() string { return v.ChildWatch.Version() }

// Due returns when the next event arrives, and whether there is one.
func (v *View[O, C]) Due() (time.Time, bool) {
	child, ok := v.ChildWatch.Due()
	if owner, other := v.OwnerWatch.Due(); other && (!ok || !owner.After(child)) {
		return owner, true
	}
	return child, ok
}

// Step delivers the next event if it is due; if both kinds have one at the same
// time, that of owners.
func (v *View[O, C]) Step() {
	due, _ := v.Due()
	if owner, ok := v.OwnerWatch.Due(); ok && owner.Equal(due) {
		v.OwnerWatch.Step()
		return
	}
	v.ChildWatch.Step()
}

// A Stream is the watch of one kind, and the cache that it fills. Events arrive in
// the order of the writes. As in an informer, an event first changes the cache, and
// then the handler is called. Do not change objects of the cache.
type Stream[T Object[T]] struct {
	// Lag is how long an event takes from now on to arrive. No event overtakes
	// another.
	Lag time.Duration
	// The event handlers; each may be nil. They are given a T, OnDelete also a
	// Tombstone of one. The first error that one returns is kept for View.Intact.
	OnAdd    func(obj any) error
	OnUpdate func(old, obj any) error
	OnDelete func(obj any) error

	table   *table[T]
	cache   index[T]
	arrived index[T] // what the cache was filled with, to compare
	version string
	synced  bool // the first list has arrived
	broken  bool
	hung    bool
	queue   []event[T]
	last    event[T]
	err     error // of a handler
	hidden
}

// A Tombstone says that an object is gone whose deletion the watch did not see. Obj
// is the last known state of the object.
type Tombstone struct {
	Key string
	Obj any
}

type event[T any] struct {
	object  T
	is      change
	version string // that of the cache once it has arrived; "" leaves it
	listed  bool   // the last one of a list
	due     time.Time
}

type change uint8

const (
	there  change = iota // the object is as it is here
	gone                 // it was removed
	missed               // it was removed while nobody watched
)

func watch[T Object[T]](t *table[T]) *Stream[T] {
	s := &Stream[T]{table: t}
	s.hidden = inside.Hide(&inside.Stream{Lose: s.lose, Repeat: s.repeat, Replay: s.replay})
	t.streams = append(t.streams, s)
	s.Relist()
	return s
}

func (s *Stream[T]) stop() {
	s.queue = nil
	s.table.streams = slices.DeleteFunc(s.table.streams, func(other *Stream[T]) bool { return other == s })
}

// Break breaks the watch: events that have not arrived are lost, and so are all
// later ones until Relist.
func (s *Stream[T]) Break() { s.queue, s.broken = nil, true }

// Broken reports whether the watch is broken.
func (s *Stream[T]) Broken() bool { return s.broken }

// Hang makes the watch hang: no event arrives until Resume or Relist, and there is
// no error.
func (s *Stream[T]) Hang() { s.hung = true }

// Resume ends a Hang: the events that were kept back arrive when their Lag is over.
func (s *Stream[T]) Resume() { s.hung = false }

// Hung reports whether the watch hangs.
func (s *Stream[T]) Hung() bool { return s.hung }

// Relist lists all objects and watches from there. Every object arrives again,
// changed or not. For an object that is gone, a Tombstone arrives.
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
	version := strconv.FormatUint(s.table.server.Version(), 10)
	if n := len(s.queue); n > 0 {
		s.queue[n-1].listed, s.queue[n-1].version = true, version
		return
	}
	s.synced, s.version = true, version // an empty list is there at once
}

func (s *Stream[T]) repeat() {
	if s.last.version != "" && s.last.is != missed {
		s.deliver(s.last)
	}
}

func (s *Stream[T]) lose() {
	if len(s.queue) > 0 && !s.queue[0].listed {
		s.queue = s.queue[1:]
	}
}

// ListFrom lets a view that has seen nothing yet begin with the first list of another
// view, which hangs since then: as if the server that it lists from were behind. What
// happened after that list arrives d later. It reports whether there is such a list.
func (v *View[O, C]) ListFrom(old *View[O, C], d time.Duration) bool {
	if old == nil || old.OwnerWatch == nil || old.ChildWatch == nil || old.OwnerWatch.broken || old.ChildWatch.broken {
		return false
	}
	v.OwnerWatch.listFrom(old.OwnerWatch, d)
	v.ChildWatch.listFrom(old.ChildWatch, d)
	return true
}

func (s *Stream[T]) listFrom(old *Stream[T], d time.Duration) {
	s.queue, s.synced, s.version, s.Lag = slices.Clone(old.queue), false, "", d
	n := 1 + slices.IndexFunc(s.queue, func(e event[T]) bool { return e.listed })
	if n == 0 { // the list was empty
		s.synced, s.version = true, old.version
	}
	for i := range s.queue {
		s.queue[i].due = s.table.server.now()
		if i >= n {
			s.queue[i].due = s.queue[i].due.Add(d)
		}
	}
}

func (s *Stream[T]) replay(every time.Duration) {
	s.hung = false
	for i := range s.queue {
		s.queue[i].due = s.table.server.now().Add(time.Duration(i+1) * every)
	}
}

// receive puts an event on its way. The cache has objects of its own.
func (s *Stream[T]) receive(e event[T]) {
	if s.broken {
		return
	}
	e.due = s.table.server.now().Add(s.Lag)
	if n := len(s.queue); n > 0 && s.queue[n-1].due.After(e.due) {
		e.due = s.queue[n-1].due
	}
	s.queue = append(s.queue, e)
}

// Get returns the object that the cache has under this namespace and name, and
// whether it has one.
func (s *Stream[T]) Get(namespace, name string) (T, bool) { return s.cache.get(namespace, name) }

// In returns the objects that the cache has in a namespace, sorted by namespace and
// name; for namespace "", those of all namespaces.
func (s *Stream[T]) In(namespace string) []T { return s.cache.in(namespace) }

// Version returns the resourceVersion up to which the cache is filled; "" if
// nothing has arrived yet.
func (s *Stream[T]) Version() string { return s.version }

// Pending returns how many events have not arrived yet.
func (s *Stream[T]) Pending() int { return len(s.queue) }

// Due returns when the next event arrives, and whether there is one. While the
// watch hangs, there is none.
func (s *Stream[T]) Due() (time.Time, bool) {
	if len(s.queue) == 0 || s.hung {
		return time.Time{}, false
	}
	return s.queue[0].due, true
}

// Step delivers the next event if it is due.
func (s *Stream[T]) Step() {
	if due, ok := s.Due(); ok && !due.After(s.table.server.now()) {
		s.Deliver()
	}
}

// Deliver delivers the next event even if it is not due. If there is none, or if
// the watch hangs, it does nothing.
func (s *Stream[T]) Deliver() {
	if len(s.queue) == 0 || s.hung {
		return
	}
	s.last = s.queue[0]
	s.queue = s.queue[1:]
	s.deliver(s.last)
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

// tell changes the cache and calls the handler.
func (s *Stream[T]) tell(e event[T]) error {
	old, known := s.cache.get(e.object.GetNamespace(), e.object.GetName())
	if e.is != there {
		return s.tellGone(e)
	}
	s.leaves(e.object)
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
	s.leaves(e.object)
	s.cache.drop(e.object)
	s.arrived.drop(e.object)
	switch {
	case s.OnDelete == nil:
		return nil
	case e.is == missed:
		key := types.NamespacedName{Namespace: e.object.GetNamespace(), Name: e.object.GetName()}
		return s.OnDelete(Tombstone{Key: key.String(), Obj: e.object.DeepCopy()})
	}
	return s.OnDelete(e.object.DeepCopy())
}

// leaves compares an object for the last time, before the cache loses or replaces the one of its name.
func (s *Stream[T]) leaves(of T) {
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
