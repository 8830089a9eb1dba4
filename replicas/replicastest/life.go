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

// Timing says how long things take on a cluster. A zero field means the value in its comment. The
// values of Detect, Evict and Collect are Kubernetes' defaults.
type Timing struct {
	Schedule time.Duration // from a pod's creation to its node (0.5 s); negative means never
	StartUp  time.Duration // from the choice of the node to a ready pod, or from the creation of another child to a ready one (2 s)
	Detect   time.Duration // from the loss of a node to pods that are not ready (50 s)
	Evict    time.Duration // from pods that are not ready to their deletion (5 min)
	Collect  time.Duration // from the removal of a node to pods that are gone (40 s)
	Garbage  time.Duration // from the end of an owner or a namespace to its children's deletion (1 s)
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

// A life simulates what happens to children without any call. Pods have one life, and all other
// children have another.
type life[C any] interface {
	// prepare sets the fields that the API server sets.
	prepare(child C)
	// created starts the life of a new child.
	created(child C)
	// resumed continues the life of a child that a backup restored.
	resumed(child C)
	// isFinished reports whether a child no longer counts for quotas.
	isFinished(child C) bool
	// grace is how long the deletion of a child takes.
	grace(child C, opts metav1.DeleteOptions) time.Duration
	// act does a task for a child as it is stored. actOnNode does one for a node.
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

// objects are children that are not pods. They have no grace period, and become ready if Ready is
// set.
type objects[O Object[O], C Object[C]] struct{ *Cluster[O, C] }

func (objects[O, C]) prepare(C) {}

func (c objects[O, C]) created(child C) {
	if c.Ready != nil {
		c.after(c.timing.StartUp, start, child)
	}
}

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

// A task is something that the cluster will do later.
type task[O Object[O], C Object[C]] struct {
	at    time.Time
	do    job
	child *C     // as it was when the task was made; nil if there is none
	name  string // of a node or a namespace
	*landing[O, C]
}

type job uint8

const (
	bind    job = iota // the scheduler finds a node for the pod
	start              // the child becomes ready
	kill               // the kubelet confirms that the pod has stopped
	detect             // the node is found to be silent
	evict              // the pods of a silent node are deleted
	collect            // the pods of a removed node are removed
	sweep              // the garbage collector looks for children without owners
	empty              // the objects in a namespace are deleted
	land               // a call takes effect late
)

func (c *Cluster[O, C]) after(d time.Duration, do job, child C) {
	c.later(d, task[O, C]{do: do, child: &child})
}

func (c *Cluster[O, C]) later(d time.Duration, t task[O, C]) {
	t.at = c.Clock.Now().Add(d)
	i, _ := slices.BinarySearchFunc(c.tasks, t, func(other, t task[O, C]) int {
		return cmp.Or(other.at.Compare(t.at), -1) // after the tasks of the same instant
	})
	c.tasks = slices.Insert(c.tasks, i, t)
}

// Due returns the time at which the cluster acts next, and whether it will act.
func (c *Cluster[O, C]) Due() (time.Time, bool) {
	if len(c.tasks) == 0 {
		return time.Time{}, false
	}
	return c.tasks[0].at, true
}

// Step does the next task of the cluster if it is due.
func (c *Cluster[O, C]) Step() {
	if due, ok := c.Due(); !ok || due.After(c.Clock.Now()) {
		return
	}
	c.act()
}

// act does the next task of the cluster even if it is not due. Without a task, it does nothing.
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

// actOn does a task for a child if the child still exists.
func (c *Cluster[O, C]) actOn(t task[O, C]) {
	was := *t.child
	child, err := c.children.get(was.GetNamespace(), was.GetName())
	if err == nil && child.GetUID() == was.GetUID() {
		c.life.act(t.do, child)
	}
}
