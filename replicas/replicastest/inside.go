// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/replicakit/replicakit/internal/inside"
)

// An insideCluster has the methods of a Cluster that only this library's own tests call.
type insideCluster[O Object[O], C Object[C]] Cluster[O, C]

func (c *insideCluster[O, C]) Backup() (restore func()) {
	version, owners, children := c.version, slices.Clone(c.owners.rows), slices.Clone(c.children.rows)
	return func() { (*Cluster[O, C])(c).restore(version, slices.Clone(owners), slices.Clone(children)) }
}

func (c *Cluster[O, C]) restore(version uint64, owners index[O], children index[C]) {
	// The tasks of the children that exist again are created anew below.
	c.tasks = slices.DeleteFunc(c.tasks, func(t task[O, C]) bool { return t.child != nil })
	c.version, c.owners.rows, c.children.rows = version, owners, children
	// The server was down meanwhile, so all watches have broken.
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

// A churn repeatedly changes every child in a namespace.
type churn[O Object[O], C Object[C]] struct {
	cluster   *Cluster[O, C]
	namespace string
	every     time.Duration
	next      time.Time
	n         int
}

func (c *insideCluster[O, C]) Churn(namespace string, every time.Duration) inside.Part {
	every = cmp.Or(max(every, 0), time.Second)
	return &churn[O, C]{cluster: (*Cluster[O, C])(c), namespace: namespace, every: every, next: c.Clock.Now().Add(every / 2)}
}

func (c *churn[O, C]) Due() (time.Time, bool) { return c.next, true }

func (c *churn[O, C]) Step() {
	if c.next.After(c.cluster.Clock.Now()) {
		return
	}
	c.next = c.next.Add(c.every)
	c.n++
	for _, child := range c.cluster.children.rows.in(c.namespace) {
		_, _ = c.cluster.EditChild(context.Background(), child.GetNamespace(), child.GetName(), func(child C) {
			annotations := child.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["example.com/seen"] = strconv.Itoa(c.n)
			child.SetAnnotations(annotations)
		})
	}
}
