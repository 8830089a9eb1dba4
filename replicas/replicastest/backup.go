// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import "slices"

type insideCluster[O Object[O], C Object[C]] Cluster[O, C]

func (c *insideCluster[O, C]) Backup() (restore func()) {
	version, owners, children := c.version, slices.Clone(c.owners.rows), slices.Clone(c.children.rows)
	return func() { (*Cluster[O, C])(c).restore(version, slices.Clone(owners), slices.Clone(children)) }
}

func (c *Cluster[O, C]) restore(version uint64, owners index[O], children index[C]) {
	c.tasks = slices.DeleteFunc(c.tasks, func(t task[O, C]) bool { return t.child != nil }) // life.resumed creates new tasks for the children
	c.version, c.owners.rows, c.children.rows = version, owners, children
	for _, s := range c.children.streams {
		s.Break()
	}
	for _, s := range c.owners.streams {
		s.Break()
	}
	for _, child := range c.children.rows {
		c.life.resumed(child)
	}
	c.collectLater()
}
