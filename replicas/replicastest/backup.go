// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// A Backup is what an API server had stored at one moment.
type Backup[O Object[O], C Object[C]] struct {
	version  uint64
	owners   index[O]
	children index[C]
}

// Backup returns what is stored now.
func (c *Cluster[O, C]) Backup() Backup[O, C] {
	return Backup[O, C]{c.version, slices.Clone(c.owners.rows), slices.Clone(c.children.rows)}
}

// Restore replaces what is stored by a backup. Resource versions go back too, so
// later writes get versions that were used before. All watches break, and
// Changed is not called. A namespace that is being deleted stays so.
func (c *Cluster[O, C]) Restore(b Backup[O, C]) {
	c.tasks = slices.DeleteFunc(c.tasks, func(t task[O, C]) bool { return t.child != nil }) // of what never was
	c.version, c.owners.rows, c.children.rows = b.version, slices.Clone(b.owners), slices.Clone(b.children)
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

// A PodBackup is a Backup of ReplicaSets and pods.
type PodBackup = Backup[*appsv1.ReplicaSet, *corev1.Pod]
