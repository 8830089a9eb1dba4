package sim

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
)

// Clone returns a cluster that goes on from here on its own. Nobody watches it:
// views are cloned with their controllers, hooks are not.
func (c *Cluster) Clone() *Cluster {
	random := rand.PCG{}
	if state, err := c.random.MarshalBinary(); err == nil {
		_ = random.UnmarshalBinary(state)
	}
	clone := *c
	clone.Clock = NewClock(c.Clock.Now())
	clone.Events = slices.Clip(c.Events)
	clone.Webhook, clone.Changed = nil, nil
	clone.random = &random
	clone.quota, clone.ending = maps.Clone(c.quota), maps.Clone(c.ending)
	clone.tasks = slices.Clone(c.tasks)
	clone.nodes = slices.Clone(c.nodes)
	for i, n := range clone.nodes {
		other := *n
		clone.nodes[i] = &other
	}
	clone.pods, clone.sets = c.pods.clone(&clone), c.sets.clone(&clone)
	return &clone
}

func (t *table[T]) clone(c *Cluster) *table[T] {
	return &table[T]{cluster: c, kind: t.kind, resource: t.resource, rows: slices.Clone(t.rows)}
}

// Clone returns a controller that goes on from here on a clone of its cluster.
// Hooks and a ConsistencyStore are not cloned.
func (c *Controller) Clone(cluster *Cluster) *Controller {
	clone := NewController(cluster)
	clone.BurstReplicas, clone.Skew = c.BurstReplicas, c.Skew
	clone.View.Pods.copyOf(c.View.Pods)
	clone.View.ReplicaSets.copyOf(c.View.ReplicaSets)
	clone.Worker.queue, clone.Worker.failures = slices.Clone(c.Worker.queue), maps.Clone(c.Worker.failures)
	copyExpectations(clone.Reconciler.Expectations, c.Reconciler.Expectations)
	copyMemory(clone.Reconciler, c.Reconciler)
	return clone
}

func (s *Stream[T]) copyOf(other *Stream[T]) {
	s.Lag, s.version, s.synced, s.broken, s.last = other.Lag, other.version, other.synced, other.broken, other.last
	s.cache, s.arrived, s.queue = slices.Clone(other.cache), slices.Clone(other.arrived), slices.Clone(other.queue)
}

func copyExpectations(to, from *expectations.Store[expectations.Key]) {
	now := to.Now
	defer func() { to.Now = now }()
	for key, p := range from.All() {
		to.Now = func() time.Time { return p.Since }
		to.Set(key, p.Changes)
	}
}

// memory is what a Reconciler remembers of owners beside expectations: a map of
// slices of pointers, by name. It is nobody else's business, so there is no other
// way in.
func memory(r *replicas.Reconciler) reflect.Value {
	field := reflect.ValueOf(r).Elem().FieldByName("owners").FieldByName("m")
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

func copyMemory(to, from *replicas.Reconciler) {
	source := memory(from)
	if source.IsNil() {
		return
	}
	target := reflect.MakeMap(source.Type())
	for entry := source.MapRange(); entry.Next(); {
		owners := reflect.MakeSlice(source.Type().Elem(), 0, entry.Value().Len())
		for _, of := range entry.Value().Seq2() {
			owner := reflect.New(of.Type().Elem())
			owner.Elem().Set(of.Elem())
			owners = reflect.Append(owners, owner)
		}
		target.SetMapIndex(entry.Key(), owners)
	}
	memory(to).Set(target)
}
