package replicastest

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// Timing is how long things take on a cluster. Zero fields stand for the values
// named here; of these Detect, Evict and Collect are Kubernetes' own.
type Timing struct {
	Schedule time.Duration // from a pod's creation to its node: 0.5 s; negative: never
	StartUp  time.Duration // from there to a ready pod: 2 s
	Detect   time.Duration // from the loss of a node to pods that are not ready: 50 s
	Evict    time.Duration // from there to pods that are deleted: 5 min
	Collect  time.Duration // from the removal of a node to pods that are gone: 40 s
	Garbage  time.Duration // from the end of an owner or a namespace to its pods' deletion: 1 s
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

// A node runs pods while its kubelet is alive, and is given new ones while it is
// believed to be.
type node struct {
	name         string
	alive, ready bool
}

// AddNode adds a node that is ready.
func (c *Cluster) AddNode(name string) {
	c.nodes = append(c.nodes, &node{name: name, alive: true, ready: true})
}

// LoseNode makes a node fall silent: after some time its pods are no longer
// ready, later they are deleted, but nobody confirms that they have stopped.
func (c *Cluster) LoseNode(name string) {
	if n := c.node(name); n != nil {
		n.alive = false
		c.later(c.timing.Detect, task{do: detect, name: name})
	}
}

// RemoveNode removes a node for good: after some time its pods are gone.
func (c *Cluster) RemoveNode(name string) {
	c.nodes = slices.DeleteFunc(c.nodes, func(n *node) bool { return n.name == name })
	c.later(c.timing.Collect, task{do: collect, name: name})
}

func (c *Cluster) node(name string) *node {
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// A task is what the scheduler, a kubelet or one of the controllers of the cluster
// will do.
type task struct {
	at   time.Time
	do   job
	pod  *corev1.Pod // as it was when the task was made
	name string      // of a node or a namespace
	*landing
}

type job uint8

const (
	bind    job = iota // the scheduler finds a node for the pod
	start              // the kubelet reports the pod as running and ready
	kill               // the kubelet confirms that the pod has stopped
	detect             // the node is found to be silent
	evict              // the pods of a silent node are deleted
	collect            // the pods of a removed node are removed
	sweep              // the garbage collector looks for pods without owners
	empty              // what a namespace holds is deleted
	land               // a call takes effect late
)

func (c *Cluster) schedule(p *corev1.Pod) {
	if c.timing.Schedule > 0 {
		c.after(c.timing.Schedule, bind, p)
	}
}

func (c *Cluster) after(d time.Duration, do job, p *corev1.Pod) { c.later(d, task{do: do, pod: p}) }

func (c *Cluster) later(d time.Duration, t task) {
	t.at = c.Clock.Now().Add(d)
	i, _ := slices.BinarySearchFunc(c.tasks, t, func(other, t task) int {
		return cmp.Or(other.at.Compare(t.at), -1) // behind those of the same instant
	})
	c.tasks = slices.Insert(c.tasks, i, t)
}

// Due returns when something happens next on the cluster's side.
func (c *Cluster) Due() (time.Time, bool) {
	if len(c.tasks) == 0 {
		return time.Time{}, false
	}
	return c.tasks[0].at, true
}

// Step lets the next thing happen on the cluster's side if it is due.
func (c *Cluster) Step() {
	if due, ok := c.Due(); !ok || due.After(c.Clock.Now()) {
		return
	}
	c.Act()
}

// Act lets the next thing happen on the cluster's side, due or not, if there is
// one.
func (c *Cluster) Act() {
	if len(c.tasks) == 0 {
		return
	}
	t := c.tasks[0]
	c.tasks = c.tasks[1:]
	switch {
	case t.pod != nil:
		c.doPod(t)
	case t.do == sweep:
		c.collectGarbage()
	case t.do == empty:
		c.emptyNamespace(t.name)
	case t.do == land:
		c.land(t.landing)
	default:
		c.doNode(t)
	}
}

// doPod does a task for a pod, if it is still there.
func (c *Cluster) doPod(t task) {
	p, err := c.pods.get(t.pod.Namespace, t.pod.Name)
	if err != nil || p.UID != t.pod.UID {
		return
	}
	switch {
	case t.do == bind && p.Spec.NodeName == "" && pod.IsActive(p):
		c.bindPod(p)
	case t.do == start && c.runs(p) && pod.IsActive(p):
		c.change(p, becomeReady)
	case t.do == kill && (c.runs(p) || p.Spec.NodeName == ""):
		c.pods.delete(p, 0)
	}
}

// doNode does a task for all pods of a node.
func (c *Cluster) doNode(t task) {
	if n := c.node(t.name); t.do == detect && n != nil {
		n.ready = false
		c.later(c.timing.Evict, task{do: evict, name: t.name})
	}
	for _, p := range slices.Clone(c.pods.rows) {
		switch {
		case p.Spec.NodeName != t.name:
		case t.do == detect:
			c.change(p, becomeUnready)
		case t.do == evict:
			if p.DeletionTimestamp == nil {
				c.deletePod(p, metav1.DeleteOptions{})
			}
		case t.do == collect:
			c.pods.delete(c.change(p, fail), 0)
		}
	}
}

// bindPod gives the pod to the ready node with the fewest active pods, or waits
// for one.
func (c *Cluster) bindPod(p *corev1.Pod) {
	var best *node
	fewest := 0
	for _, n := range c.nodes {
		if load := c.load(n); n.ready && (best == nil || load < fewest) {
			best, fewest = n, load
		}
	}
	if best == nil {
		c.after(time.Second, bind, p)
		return
	}
	p = c.change(p, func(p *corev1.Pod, at metav1.Time) {
		p.Spec.NodeName = best.name
		setCondition(p, corev1.PodScheduled, corev1.ConditionTrue, at)
	})
	c.after(c.timing.StartUp, start, p)
}

func (c *Cluster) load(n *node) int {
	load := 0
	for _, p := range c.pods.rows {
		if p.Spec.NodeName == n.name && pod.IsActive(p) {
			load++
		}
	}
	return load
}

// runs reports whether the kubelet of the pod's node is alive.
func (c *Cluster) runs(p *corev1.Pod) bool {
	n := c.node(p.Spec.NodeName)
	return n != nil && n.alive
}

// change makes a change of the cluster's own, which needs no validation.
func (c *Cluster) change(old *corev1.Pod, change func(p *corev1.Pod, at metav1.Time)) *corev1.Pod {
	p := old.DeepCopy()
	change(p, c.timestamp())
	return c.pods.write(old, p)
}

func becomeReady(p *corev1.Pod, at metav1.Time) {
	p.Status.Phase = corev1.PodRunning
	p.Status.StartTime = &at
	p.Status.ContainerStatuses = nil
	for _, container := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: container.Name, Image: container.Image, Ready: true})
	}
	setCondition(p, corev1.PodReady, corev1.ConditionTrue, at)
}

func becomeUnready(p *corev1.Pod, at metav1.Time) {
	setCondition(p, corev1.PodReady, corev1.ConditionFalse, at)
}

func fail(p *corev1.Pod, at metav1.Time) {
	if !pod.IsFinished(p) {
		p.Status.Phase = corev1.PodFailed
		setCondition(p, corev1.DisruptionTarget, corev1.ConditionTrue, at)
	}
}

// setCondition sets a condition of the pod; its time only if it changes.
func setCondition(p *corev1.Pod, kind corev1.PodConditionType, value corev1.ConditionStatus, at metav1.Time) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			if c.Status != value {
				c.Status, c.LastTransitionTime = value, at
			}
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: value, LastTransitionTime: at})
}
