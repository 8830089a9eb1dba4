// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// kubelets is the life of pods: a scheduler, nodes with kubelets, and the loss of nodes.
type kubelets[O Object[O]] struct{ *Cluster[O, *corev1.Pod] }

func (c kubelets[O]) prepare(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if p.Spec.TerminationGracePeriodSeconds == nil {
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
}

func (c kubelets[O]) created(p *corev1.Pod) {
	if c.timing.Schedule > 0 {
		c.doLater(c.timing.Schedule, bind, p)
	}
}

// changed creates the task of the kubelet.
func (c kubelets[O]) changed(p *corev1.Pod) {
	if p.Status.Phase == corev1.PodRunning {
		// A pod that has not started yet has this task already, and starts with its newest spec.
		c.doLater(c.timing.StartUp, start, p)
	}
}

// resumed creates the tasks of the scheduler and the kubelet for a pod from a backup.
func (c kubelets[O]) resumed(p *corev1.Pod) {
	switch {
	case p.DeletionTimestamp != nil:
		c.doLater(p.DeletionTimestamp.Sub(c.Clock.Now()), kill, p)
	case p.Spec.NodeName == "":
		c.created(p)
	case !pod.IsReady(p) || p.Status.ObservedGeneration < p.Generation:
		c.doLater(c.timing.StartUp, start, p)
	}
}

func (kubelets[O]) isFinished(p *corev1.Pod) bool { return pod.IsFinished(p) }

func (kubelets[O]) grace(p *corev1.Pod, opts metav1.DeleteOptions) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if p.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *p.Spec.TerminationGracePeriodSeconds
	}
	if opts.GracePeriodSeconds != nil {
		seconds = *opts.GracePeriodSeconds
	}
	if p.Spec.NodeName == "" || pod.IsFinished(p) {
		// No kubelet has to stop such a pod, so a server removes it at once.
		seconds = 0
	}
	return time.Duration(seconds) * time.Second
}

func (c kubelets[O]) act(do job, p *corev1.Pod) {
	switch {
	case do == bind && p.Spec.NodeName == "" && pod.IsActive(p):
		c.bindPod(p)
	case do == start && c.runs(p) && pod.IsActive(p):
		c.change(p, becomeReady)
	case do == kill && (c.runs(p) || p.Spec.NodeName == ""):
		// The kubelet of a lost node confirms nothing, so its pods stay terminating. A pod without a node needs no
		// kubelet.
		c.children.delete(p, 0)
	}
}

// actOnNode performs a task for all pods on a node.
func (c kubelets[O]) actOnNode(do job, name string) {
	if n := c.node(name); do == detect && n != nil {
		// The pods run on, for all that is known, so they are only unready for now, and their deletion waits.
		n.ready = false
		c.later(c.timing.Evict, task[O, *corev1.Pod]{do: evict, name: name})
	}
	for _, p := range slices.Clone(c.children.rows) {
		switch {
		case p.Spec.NodeName != name:
		case do == detect:
			c.change(p, becomeUnready)
		case do == evict:
			if p.DeletionTimestamp == nil {
				c.deleteChild(p, metav1.DeleteOptions{})
			}
		case do == collect:
			// The pod garbage collector of Kubernetes fails a pod before it removes it, so a controller may see a
			// finished pod.
			c.children.delete(c.change(p, fail), 0)
		}
	}
}

// bindPod assigns the pod to the ready node with the fewest active pods.
func (c kubelets[O]) bindPod(p *corev1.Pod) {
	var best *node
	fewest := 0
	for _, n := range c.nodes {
		if load := c.load(n); n.ready && (best == nil || load < fewest) {
			best, fewest = n, load
		}
	}
	if best == nil {
		// No node is ready. Perhaps one is in a second.
		c.doLater(time.Second, bind, p)
		return
	}
	p = c.change(p, func(p *corev1.Pod, at metav1.Time) {
		p.Spec.NodeName = best.name
		setCondition(p, corev1.PodScheduled, corev1.ConditionTrue, at)
		setCondition(p, corev1.PodReady, corev1.ConditionFalse, at) // the node's kubelet reports this as soon as it knows the pod
	})
	c.doLater(c.timing.StartUp, start, p)
}

func (c kubelets[O]) load(n *node) int {
	load := 0
	for _, p := range c.children.rows {
		if p.Spec.NodeName == n.name && pod.IsActive(p) {
			load++
		}
	}
	return load
}

// runs reports whether the kubelet of the pod's node is alive.
func (c kubelets[O]) runs(p *corev1.Pod) bool {
	n := c.node(p.Spec.NodeName)
	return n != nil && n.alive
}

// change stores a changed pod on behalf of the cluster, without validation.
func (c kubelets[O]) change(old *corev1.Pod, change func(p *corev1.Pod, at metav1.Time)) *corev1.Pod {
	p := old.DeepCopy()
	// The kubelet writes the time of its own clock, which may be apart from the server's.
	change(p, metav1.NewTime(c.timestamp().Add(c.nodeSkew)))
	return c.children.write(old, p)
}

func becomeReady(p *corev1.Pod, at metav1.Time) {
	p.Status.Phase = corev1.PodRunning
	p.Status.ObservedGeneration = p.Generation
	if p.Status.StartTime == nil {
		p.Status.StartTime = &at
	}
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

// setCondition sets a condition of the pod.
func setCondition(p *corev1.Pod, kind corev1.PodConditionType, value corev1.ConditionStatus, at metav1.Time) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			if c.Status != value {
				// The transition time says since when a pod is ready, so a status that stays the same must not move it.
				c.Status, c.LastTransitionTime = value, at
			}
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: value, LastTransitionTime: at})
}
