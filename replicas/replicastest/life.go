// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Timing contains the delays in a cluster. A field that is zero has the default in parentheses. Those of Detect, Evict
// and Collect are Kubernetes' own.
type Timing struct {
	Schedule time.Duration // from a pod's creation until the pod has a node (0.5 s); negative means never
	StartUp  time.Duration // time until a scheduled pod, or a new child of another kind, is ready (2 s)
	Detect   time.Duration // from the loss of a node until the node's pods are not ready (50 s)
	Evict    time.Duration // from the end of Detect until the lost node's pods are deleted (5 min)
	Collect  time.Duration // from the removal of a node until the node's pods are gone (40 s)
	Garbage  time.Duration // from the deletion of an owner or a namespace until its children are deleted (1 s)
}

func (t Timing) withDefaults() Timing {
	return Timing{
		Schedule: cmp.Or(t.Schedule, 500*time.Millisecond),
		StartUp:  cmp.Or(t.StartUp, 2*time.Second),
		Detect:   cmp.Or(t.Detect, 50*time.Second),
		Evict:    cmp.Or(t.Evict, 5*time.Minute),
		Collect:  cmp.Or(t.Collect, 40*time.Second),
		Garbage:  cmp.Or(t.Garbage, time.Second),
	}
}

// A life changes children without API calls, as when a pod becomes ready. Pods have one, and all other children
// another.
type life[C any] interface {
	// prepare sets what the API server sets in a new child.
	prepare(child C)
	// created creates the first task of a new child.
	created(child C)
	// changed creates the task of the child's own controller after a change of the generation.
	changed(child C)
	// resumed creates the tasks of a child from a backup.
	resumed(child C)
	// isFinished reports whether a child no longer counts for quotas.
	isFinished(child C) bool
	// grace returns the grace period of a deletion.
	grace(child C, opts metav1.DeleteOptions) time.Duration
	// act performs a task for a stored child, and actOnNode for all children on a node.
	act(do job, child C)
	actOnNode(do job, name string)
}

func lifeOf[O Object[O], C Object[C]](c *Cluster[O, C]) life[C] {
	if pods, ok := any(c).(*Cluster[O, *corev1.Pod]); ok {
		l, _ := any(kubelets[O]{pods}).(life[C])
		return l
	}
	return objects[O, C]{c}
}

// objects is the life of children that are not pods. They have no grace period, and become ready only through
// Cluster.Ready.
type objects[O Object[O], C Object[C]] struct{ *Cluster[O, C] }

func (objects[O, C]) prepare(C) {}

func (c objects[O, C]) created(child C) {
	if c.Ready != nil {
		c.doLater(c.timing.StartUp, start, child)
	}
}

func (c objects[O, C]) changed(child C) { c.created(child) }

func (c objects[O, C]) resumed(child C) {
	if child.GetDeletionTimestamp() == nil {
		c.created(child)
	}
}

func (objects[O, C]) isFinished(C) bool { return false }

func (objects[O, C]) grace(C, metav1.DeleteOptions) time.Duration { return 0 }

func (c objects[O, C]) act(do job, child C) {
	if do == start && c.Ready != nil && child.GetDeletionTimestamp() == nil {
		changed := child.DeepCopy()
		c.Ready(changed)
		c.children.write(child, changed)
	}
}

func (objects[O, C]) actOnNode(job, string) {}

// A task is an action that the cluster will perform later.
type task[O Object[O], C Object[C]] struct {
	at    time.Time
	do    job
	child *C     // the state of the child when the task was created; nil for a task without a child
	name  string // the name of a node or a namespace
	*landing[O, C]
}

type job uint8

const (
	bind    job = iota // the scheduler finds a node for the pod
	start              // the child becomes ready, with its newest spec
	kill               // the kubelet confirms that the pod has stopped
	detect             // the loss of a node is detected
	evict              // the pods of a lost node are deleted
	collect            // the pods of a removed node are removed as well
	sweep              // the garbage collector looks for children without owners
	empty              // the objects in a namespace are deleted
	land               // a call takes effect late
)

func (c *Cluster[O, C]) doLater(d time.Duration, do job, child C) {
	c.later(d, task[O, C]{do: do, child: &child})
}

func (c *Cluster[O, C]) later(d time.Duration, t task[O, C]) {
	t.at = c.Clock.Now().Add(d)
	// Tasks that are due at the same time are done in the order in which they were created.
	i, _ := slices.BinarySearchFunc(c.tasks, t, func(other, t task[O, C]) int {
		return cmp.Or(other.at.Compare(t.at), -1)
	})
	c.tasks = slices.Insert(c.tasks, i, t)
}

// Due returns the time of the cluster's next task, and whether there is one.
func (c *Cluster[O, C]) Due() (time.Time, bool) {
	if len(c.tasks) == 0 {
		return time.Time{}, false
	}
	return c.tasks[0].at, true
}

// Step performs the next task of the cluster if it is due.
func (c *Cluster[O, C]) Step() {
	if due, ok := c.Due(); !ok || due.After(c.Clock.Now()) {
		return
	}
	c.act()
}

// act performs the next task of the cluster, due or not.
func (c *Cluster[O, C]) act() {
	if len(c.tasks) == 0 {
		return
	}
	t := c.tasks[0]
	c.tasks = c.tasks[1:]
	switch {
	case t.child != nil:
		c.actOn(t)
	case t.do == sweep:
		c.collectGarbage()
	case t.do == empty:
		c.emptyNamespace(t.name)
	case t.do == land:
		c.land(t.landing)
	default:
		c.life.actOnNode(t.do, t.name)
	}
}

// actOn performs a task for a child that still exists.
func (c *Cluster[O, C]) actOn(t task[O, C]) {
	was := *t.child
	child, err := c.children.get(was.GetNamespace(), was.GetName())
	// The end of a pod may be confirmed when its name belongs to the next pod, which must not end with it.
	if err == nil && child.GetUID() == was.GetUID() {
		c.life.act(t.do, child)
	}
}
