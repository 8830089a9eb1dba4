// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
)

// Counts holds the number of replicas in each state, as reported in the status of an owner.
type Counts struct {
	Replicas     int32 // active replicas
	FullyLabeled int32 // active replicas with every label of the template
	Ready        int32 // active replicas that are ready
	Available    int32 // ready replicas that are available
	Terminating  int32 // replicas that are being deleted and are not active
}

// Rules defines the states of a child for Count. With the zero Rules, a child is active unless it
// is being deleted, every active child is fully labeled, and no child is ready.
type Rules[T metav1.Object] struct {
	Active       func(T) bool // if nil, a child is active if it has no deletionTimestamp
	FullyLabeled func(T) bool // called for active children; if nil, all of them are fully labeled
	Ready        func(T) bool // called for active children; if nil, none of them is ready
	Available    func(T) bool // called for ready children; if nil, all of them are available
	Terminating  func(T) bool // called for children that are not active; if nil, those with a deletionTimestamp are terminating
}

// Count returns the number of children in each state. The children can have any type. A child that
// is listed twice counts twice, and nil children are skipped. Count does not check who owns the
// children.
func Count[T metav1.Object](children []T, rules Rules[T]) (n Counts) {
	rules = rules.complete()
	isNil := object.NilOf[T]()
	for _, child := range children {
		switch {
		case isNil(child):
		case rules.Active(child):
			n.Replicas++
			n.FullyLabeled += one(rules.FullyLabeled(child))
			if rules.Ready(child) {
				n.Ready++
				n.Available += one(rules.Available(child))
			}
		case rules.Terminating(child):
			n.Terminating++
		}
	}
	return n
}

// complete returns a copy of the rules with the defaults in place of nil functions.
func (r Rules[T]) complete() Rules[T] {
	yes, no := func(T) bool { return true }, func(T) bool { return false }
	return Rules[T]{
		Active:       orElse(r.Active, func(child T) bool { return child.GetDeletionTimestamp() == nil }),
		FullyLabeled: orElse(r.FullyLabeled, yes),
		Ready:        orElse(r.Ready, no),
		Available:    orElse(r.Available, yes),
		Terminating:  orElse(r.Terminating, func(child T) bool { return child.GetDeletionTimestamp() != nil }),
	}
}

func orElse[T any](rule, otherwise func(T) bool) func(T) bool {
	if rule == nil {
		return otherwise
	}
	return rule
}

func one(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// CountPods counts pods in the same way as Kubernetes does for the status of a ReplicaSet.
// IsPodActive, IsPodReady, IsPodAvailable and IsPodTerminating define the states. A pod is fully
// labeled if it has all template labels, with the same values. If there are no template labels,
// every pod is fully labeled. A pod that is listed twice counts twice, and nil pods are skipped.
// CountPods does not check who owns the pods.
func CountPods(pods []*corev1.Pod, templateLabels map[string]string, minReadySeconds int32, now time.Time) (n Counts) {
	template, latest := object.ListLabels(templateLabels), pod.LatestReady(minReadySeconds, now)
	var block struct { // one fact of several pods is read before the next fact; object.Labels.InEach says why
		active  [16]*corev1.Pod
		labels  [16]map[string]string
		labeled [16]bool
	}
	for some := range slices.Chunk(pods, len(block.active)) {
		active := block.active[:0]
		for _, p := range some {
			if pod.IsActive(p) {
				active = append(active, p)
			} else {
				n.Terminating += one(pod.IsTerminating(p))
			}
		}
		if len(template) > 0 {
			object.LabelsOf(active, block.labels[:])
			template.InEach(block.labels[:len(active)], block.labeled[:])
		}
		for i, p := range active {
			n.Replicas++
			n.FullyLabeled += one(len(template) == 0 || block.labeled[i])
			if c := pod.ReadyCondition(p); c != nil && c.Status == corev1.ConditionTrue {
				n.Ready++
				n.Available += one(pod.IsReadySince(c, minReadySeconds, latest))
			}
		}
	}
	return n
}
