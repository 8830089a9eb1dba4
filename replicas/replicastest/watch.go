package replicastest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
)

// A View is what one controller has seen of a cluster: for each kind a cache, and
// the events that are still on their way to it. It starts with a list: every
// object that exists is on its way.
type View struct {
	Pods        *Stream[*corev1.Pod]
	ReplicaSets *Stream[*appsv1.ReplicaSet]
}

// NewView returns an empty view that the cluster sends its events to from now on.
func NewView(c *Cluster) *View {
	return &View{Pods: watch(c.pods), ReplicaSets: watch(c.sets)}
}

// Stop ends both watches: no event is sent any more, and what is on its way is
// lost.
func (v *View) Stop() {
	v.Pods.stop()
	v.ReplicaSets.stop()
}

// Synced reports whether the first list of both kinds has arrived. A controller
// must not act before.
func (v *View) Synced() bool { return v.Pods.synced && v.ReplicaSets.synced }

// Intact returns an error if an object of the caches is not as it arrived.
func (v *View) Intact() error { return errors.Join(v.Pods.intact(), v.ReplicaSets.intact()) }

// Handle gives a controller every event from now on.
func (v *View) Handle(c *controller.Controller) {
	v.Pods.OnAdd = func(obj any) error { return c.ChildAdded(obj) }
	v.Pods.OnUpdate = func(old, obj any) error { return c.ChildUpdated(old, obj) }
	v.Pods.OnDelete = func(obj any) error { return c.ChildDeleted(obj) }
	v.ReplicaSets.OnAdd = func(obj any) error { return c.OwnerAdded(obj) }
	v.ReplicaSets.OnUpdate = func(old, obj any) error { return c.OwnerUpdated(old, obj) }
	v.ReplicaSets.OnDelete = func(obj any) error { return c.OwnerDeleted(obj) }
}

var _ controller.Cache[*appsv1.ReplicaSet, *corev1.Pod] = (*View)(nil)

// Owner returns a ReplicaSet as the cache has it.
func (v *View) Owner(_ context.Context, key types.NamespacedName) (*appsv1.ReplicaSet, error) {
	if rs, ok := v.ReplicaSets.Get(key.Namespace, key.Name); ok {
		return rs, nil
	}
	return nil, apierrors.NewNotFound(replicaSetResource, key.Name)
}

// Owners returns the ReplicaSets of a namespace as the cache has them.
func (v *View) Owners(_ context.Context, namespace string) ([]*appsv1.ReplicaSet, error) {
	return v.ReplicaSets.In(namespace), nil
}

// Children returns the pods of a ReplicaSet's namespace as the cache has them.
func (v *View) Children(_ context.Context, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return v.Pods.In(rs.Namespace), nil
}

// Related returns the pods of the ReplicaSets of one Deployment as the caches have
// them.
func (v *View) Related(_ context.Context, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return replicas.Related(rs, v.ReplicaSets.In(rs.Namespace), selector.ForReplicaSet, v.Pods.In(rs.Namespace)), nil
}

// OwnersVersion returns the version up to which ReplicaSets have been seen.
func (v *View) OwnersVersion() string { return v.ReplicaSets.Version() }

// ChildrenVersion returns the version up to which pods have been seen.
func (v *View) ChildrenVersion() string { return v.Pods.Version() }

// Due returns when the next event arrives; that of a ReplicaSet comes first
// where both kinds have one.
func (v *View) Due() (time.Time, bool) {
	pods, ok := v.Pods.Due()
	if sets, other := v.ReplicaSets.Due(); other && (!ok || !sets.After(pods)) {
		return sets, true
	}
	return pods, ok
}

// Step delivers the next event that is due.
func (v *View) Step() {
	due, _ := v.Due()
	if sets, ok := v.ReplicaSets.Due(); ok && sets.Equal(due) {
		v.ReplicaSets.Step()
		return
	}
	v.Pods.Step()
}

// A Stream is the watch of one kind and the cache that it feeds. Events arrive
// in the order of the writes; first the cache is changed, then the handler is
// called, as informers do. What the cache returns is shared: read it only.
type Stream[T object[T]] struct {
	// Lag is how long an event that is sent from now on is under way. One never
	// overtakes another.
	Lag time.Duration
	// The handlers, as informers have them; nil: nobody is told. What
	// they are given is of type T, or a Tombstone of one. An error is a broken
	// test, and panics.
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
}

// A Tombstone tells that an object is gone whose deletion was not seen: it has
// the last state that was.
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

func watch[T object[T]](t *table[T]) *Stream[T] {
	s := &Stream[T]{table: t}
	t.streams = append(t.streams, s)
	s.Relist()
	return s
}

func (s *Stream[T]) stop() {
	s.queue = nil
	s.table.streams = slices.DeleteFunc(s.table.streams, func(other *Stream[T]) bool { return other == s })
}

// Break ends the watch: what is on its way is lost, and what happens from now on
// is not seen, until Relist.
func (s *Stream[T]) Break() { s.queue, s.broken = nil, true }

// Broken reports whether the watch is broken.
func (s *Stream[T]) Broken() bool { return s.broken }

// Hang lets the watch hang: what happens from now on is sent and does not arrive,
// and no error tells of it, until Resume or Relist.
func (s *Stream[T]) Hang() { s.hung = true }

// Resume lets what a watch that hung has kept back arrive, as its lag has it.
func (s *Stream[T]) Resume() { s.hung = false }

// Hung reports whether the watch hangs.
func (s *Stream[T]) Hung() bool { return s.hung }

// Relist lists everything and watches on from there. What exists is sent again,
// changed or not; of what is gone only a Tombstone tells.
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
	if n := len(s.queue); n > 0 {
		s.queue[n-1].listed = true
		s.queue[n-1].version = strconv.FormatUint(s.table.cluster.version, 10)
		return
	}
	s.synced = true
}

// Repeat delivers the last event once more.
func (s *Stream[T]) Repeat() {
	if s.last.version != "" && s.last.is != missed {
		s.deliver(s.last)
	}
}

// Lose drops the next event alone, as if it had never been sent.
func (s *Stream[T]) Lose() {
	if len(s.queue) > 0 && !s.queue[0].listed {
		s.queue = s.queue[1:]
	}
}

// receive puts an event on its way. The cache has objects of its own.
func (s *Stream[T]) receive(e event[T]) {
	if s.broken {
		return
	}
	e.due = s.table.cluster.Clock.Now().Add(s.Lag)
	if n := len(s.queue); n > 0 && s.queue[n-1].due.After(e.due) {
		e.due = s.queue[n-1].due
	}
	s.queue = append(s.queue, e)
}

// Get returns the object as the cache has it.
func (s *Stream[T]) Get(namespace, name string) (T, bool) { return s.cache.get(namespace, name) }

// In returns the objects of a namespace as the cache has them, by name.
func (s *Stream[T]) In(namespace string) []T { return s.cache.in(namespace) }

// Version returns the resourceVersion up to which the cache was filled, "" if
// nothing has arrived.
func (s *Stream[T]) Version() string { return s.version }

// Pending returns how many events are still on their way.
func (s *Stream[T]) Pending() int { return len(s.queue) }

// Due returns when the next event arrives.
func (s *Stream[T]) Due() (time.Time, bool) {
	if len(s.queue) == 0 || s.hung {
		return time.Time{}, false
	}
	return s.queue[0].due, true
}

// Step delivers the next event if it is due.
func (s *Stream[T]) Step() {
	if due, ok := s.Due(); ok && !due.After(s.table.cluster.Clock.Now()) {
		s.Deliver()
	}
}

// Deliver delivers the next event, if there is one and the watch does not hang,
// however late it is to be.
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
	if err := s.tell(e); err != nil {
		panic(fmt.Sprintf("replicastest: event handler: %v", err))
	}
}

// tell changes the cache and calls the handler.
func (s *Stream[T]) tell(e event[T]) error {
	old, known := s.cache.get(e.object.GetNamespace(), e.object.GetName())
	if e.is != there {
		return s.tellGone(e)
	}
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

func (s *Stream[T]) intact() error {
	for i, obj := range s.cache {
		is, err := obj.Marshal()
		was, wasErr := s.arrived[i].Marshal()
		if err := errors.Join(err, wasErr); err != nil {
			return err
		}
		if !bytes.Equal(is, was) {
			return fmt.Errorf("replicastest: %s %q was changed in the cache", s.table.kind.Kind, obj.GetName())
		}
	}
	return nil
}
