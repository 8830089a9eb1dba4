package sim

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/replicas"
)

// A View is what one controller has seen of a cluster: for each kind a cache, and
// the events that are still on their way to it. It starts with every object that
// exists on its way.
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

// Handle gives a Router every event from now on.
func (v *View) Handle(r *replicas.Router) {
	v.Pods.OnAdd, v.Pods.OnUpdate, v.Pods.OnDelete = r.PodAdded, r.PodUpdated, r.PodDeleted
	v.ReplicaSets.OnAdd, v.ReplicaSets.OnUpdate, v.ReplicaSets.OnDelete = r.OwnerAdded, r.OwnerUpdated, r.OwnerDeleted
}

// Owner returns a ReplicaSet as the cache has it, in the form that a Router asks
// for.
func (v *View) Owner(namespace, name string) (metav1.Object, bool) {
	return v.ReplicaSets.Get(namespace, name)
}

// OwnersIn returns the ReplicaSets of a namespace as the cache has them, in the
// form that a Router asks for.
func (v *View) OwnersIn(namespace string) []metav1.Object {
	var owners []metav1.Object
	for _, rs := range v.ReplicaSets.In(namespace) {
		owners = append(owners, rs)
	}
	return owners
}

// ReadVersion returns the version up to which a kind has been seen, in the form
// that an expectations.ConsistencyStore asks for.
func (v *View) ReadVersion(resource schema.GroupResource) string {
	switch resource {
	case podResource:
		return v.Pods.Version()
	case replicaSetResource:
		return v.ReplicaSets.Version()
	}
	return ""
}

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
	// The handlers, of the form of those of a Router; nil: nobody is told. What
	// they are given is of type T. An error is a broken test, and panics.
	OnAdd    func(obj any) error
	OnUpdate func(old, obj any) error
	OnDelete func(obj any) error

	table   *table[T]
	cache   index[T]
	version string
	queue   []event[T]
}

type event[T any] struct {
	object T
	gone   bool
	due    time.Time
}

func watch[T object[T]](t *table[T]) *Stream[T] {
	s := &Stream[T]{table: t}
	for _, obj := range t.rows {
		s.receive(event[T]{object: obj})
	}
	t.streams = append(t.streams, s)
	return s
}

func (s *Stream[T]) stop() {
	s.queue = nil
	s.table.streams = slices.DeleteFunc(s.table.streams, func(other *Stream[T]) bool { return other == s })
}

// receive puts an event on its way. The cache has objects of its own.
func (s *Stream[T]) receive(e event[T]) {
	e.object = e.object.DeepCopy()
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

// Version returns the resourceVersion of the last event that arrived, "" if none
// has.
func (s *Stream[T]) Version() string { return s.version }

// Pending returns how many events are still on their way.
func (s *Stream[T]) Pending() int { return len(s.queue) }

// Due returns when the next event arrives.
func (s *Stream[T]) Due() (time.Time, bool) {
	if len(s.queue) == 0 {
		return time.Time{}, false
	}
	return s.queue[0].due, true
}

// Step delivers the next event if it is due.
func (s *Stream[T]) Step() {
	if due, ok := s.Due(); !ok || due.After(s.table.cluster.Clock.Now()) {
		return
	}
	e := s.queue[0]
	s.queue = s.queue[1:]
	s.deliver(e)
}

func (s *Stream[T]) deliver(e event[T]) {
	s.version = e.object.GetResourceVersion()
	old, known := s.cache.get(e.object.GetNamespace(), e.object.GetName())
	var err error
	switch {
	case e.gone:
		s.cache.drop(e.object)
		if s.OnDelete != nil {
			err = s.OnDelete(e.object)
		}
	case known:
		s.cache.put(e.object)
		if s.OnUpdate != nil {
			err = s.OnUpdate(old, e.object)
		}
	default:
		s.cache.put(e.object)
		if s.OnAdd != nil {
			err = s.OnAdd(e.object)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("sim: event handler: %v", err))
	}
}
