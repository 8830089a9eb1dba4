// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"maps"
	"math/rand/v2"
	"slices"
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
