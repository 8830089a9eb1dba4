// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/replicas/controller"
)

// Clone returns an independent copy of the cluster in its current state. The copy has no watches, and its hooks
// Mutate, Webhook and Changed are nil. Controller.Clone copies the watches of a controller.
func (c *Cluster[O, C]) Clone() *Cluster[O, C] {
	random := rand.PCG{}
	if state, err := c.random.MarshalBinary(); err == nil {
		_ = random.UnmarshalBinary(state)
	}
	clone := *c
	clone.Clock = NewClock(c.Clock.Now())
	clone.Events = slices.Clip(c.Events)
	clone.Mutate, clone.Webhook, clone.Changed = nil, nil, nil
	clone.random = &random
	clone.quota, clone.ending = maps.Clone(c.quota), maps.Clone(c.ending)
	clone.tasks = slices.Clone(c.tasks)
	clone.nodes = slices.Clone(c.nodes)
	for i, n := range clone.nodes {
		other := *n
		clone.nodes[i] = &other
	}
	clone.owners, clone.children = c.owners.clone(&clone), c.children.clone(&clone)
	clone.life = lifeOf(&clone)
	return &clone
}

// RestoreFrom restores the objects and the resourceVersion of another cluster, which serves as a backup.
func (c *Cluster[O, C]) RestoreFrom(backup *Cluster[O, C]) {
	c.restore(backup.version, slices.Clone(backup.owners.rows), slices.Clone(backup.children.rows))
}

func (t *table[T]) clone(c server) *table[T] {
	clone := *t
	clone.server, clone.rows, clone.streams = c, slices.Clone(t.rows), nil
	return &clone
}

// Clone returns a copy of the controller in its current state. The copy uses the given cluster, which must be a
// clone of the controller's cluster. Hooks, Options and the record of status writes are not copied.
func (c *Controller[O, C]) Clone(cluster *Cluster[O, C]) *Controller[O, C] {
	clone := cluster.NewController()
	clone.BurstReplicas, clone.Skew, clone.RememberWrites = c.BurstReplicas, c.Skew, c.RememberWrites
	clone.Client.id = c.Client.id
	clone.View.ChildWatch.copyOf(c.View.ChildWatch)
	clone.View.OwnerWatch.copyOf(c.View.OwnerWatch)
	clone.Worker.queue, clone.Worker.failures = slices.Clone(c.Worker.queue), maps.Clone(c.Worker.failures)
	clone.remember(c)
	return clone
}

func (s *Stream[T]) copyOf(other *Stream[T]) {
	s.Lag, s.version, s.synced, s.broken, s.hung, s.last = other.Lag, other.version, other.synced, other.broken, other.hung, other.last
	s.cache, s.arrived, s.queue = slices.Clone(other.cache), slices.Clone(other.arrived), slices.Clone(other.queue)
}

// Act performs the next task of the cluster, even if the task is not due yet.
func (c *Cluster[O, C]) Act() { c.act() }

// remember copies the memory of another controller into this controller.
func (c *Controller[O, C]) remember(other *Controller[O, C]) {
	copyDeep(memory(c.controller), memory(other.controller))
	copyDeep(fieldOf(c.controller, "term"), fieldOf(other.controller, "term"))
}

// memory returns everything that a controller remembers about its owners. The result is a map from names to
// slices of pointers. The map is read by reflection, because the controller does not export it.
func memory(c *controller.Controller) reflect.Value {
	return writable(fieldOf(c, "owners").FieldByName("m"))
}

func fieldOf(c *controller.Controller, field string) reflect.Value {
	reconciler := reflect.ValueOf(c).Elem().FieldByName("reconciler").Elem().Elem()
	return writable(reconciler.FieldByName(field))
}

// writable returns the same field as a value that can be set. The field may be unexported, and its struct must
// be addressable.
func writable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// isShared reports whether copyDeep may use the same value in both copies. Values of such a type are never
// changed, or contain nothing that a controller remembers.
func isShared(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[*corev1.Pod]():
		return true
	}
	return t.Kind() == reflect.Interface
}

// isNothing reports whether copyDeep and State leave out the values of a type. The values that are left out are
// locks, counters and functions. A function is only called when the current write ends.
func isNothing(t reflect.Type) bool {
	return t == reflect.TypeFor[sync.Mutex]() || t == reflect.TypeFor[atomic.Int64]() || t.Kind() == reflect.Func
}

// copyDeep copies a value, and everything that the value points to.
func copyDeep(to, from reflect.Value) {
	switch t := from.Type(); {
	case isNothing(t):
	case isShared(t):
		to.Set(from)
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			copyDeep(writable(to.Field(i)), writable(from.Field(i)))
		}
	case from.Kind() == reflect.Pointer && !from.IsNil():
		to.Set(reflect.New(t.Elem()))
		copyDeep(to.Elem(), from.Elem())
	case from.Kind() == reflect.Slice && !from.IsNil():
		to.Set(reflect.MakeSlice(t, from.Len(), from.Len()))
		for i := range from.Len() {
			copyDeep(to.Index(i), from.Index(i))
		}
	case from.Kind() == reflect.Map && !from.IsNil():
		to.Set(reflect.MakeMapWithSize(t, from.Len()))
		for entry := from.MapRange(); entry.Next(); {
			of, is := reflect.New(t.Elem()).Elem(), reflect.New(t.Elem()).Elem()
			is.Set(entry.Value())
			copyDeep(of, is)
			to.SetMapIndex(entry.Key(), of)
		}
	default:
		to.Set(from)
	}
}
