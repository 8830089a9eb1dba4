// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"slices"
	"time"
)

// A node runs pods while its kubelet is alive, and gets new ones only while it is ready.
type node struct {
	name         string
	alive, ready bool
}

func (c *insideCluster[O, C]) AddNode(name string) {
	c.nodes = append(c.nodes, &node{name: name, alive: true, ready: true})
}

func (c *insideCluster[O, C]) SkewNodes(d time.Duration) { c.nodeSkew = d }

// LoseNode cuts a node off from the cluster. After Timing.Detect, its pods are no longer ready, and after a further
// Timing.Evict their deletion starts. They then remain terminating, because no kubelet confirms that they have stopped.
func (c *Cluster[O, C]) LoseNode(name string) {
	if n := c.node(name); n != nil {
		n.alive = false
		c.later(c.timing.Detect, task[O, C]{do: detect, name: name})
	}
}

// RemoveNode removes a node permanently. After Timing.Collect, the node's pods are gone.
func (c *Cluster[O, C]) RemoveNode(name string) {
	c.nodes = slices.DeleteFunc(c.nodes, func(n *node) bool { return n.name == name })
	c.later(c.timing.Collect, task[O, C]{do: collect, name: name})
}

func (c *Cluster[O, C]) node(name string) *node {
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}
