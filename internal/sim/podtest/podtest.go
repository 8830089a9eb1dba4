// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podtest makes pods for the tests and benchmarks of the other packages.
package podtest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/replicaset"
)

// Namespace is the namespace of every pod that this package creates.
const Namespace = "default"

// Now is the current time in tests that use pods of this package.
var Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)

// An Option changes one pod.
type Option func(*corev1.Pod)

// Pod returns a running pod on the node "node-1", which was created and became ready one hour before Now. Its UID is
// "uid-" followed by its name. The options are applied in order.
func Pod(name string, options ...Option) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         Namespace,
			Name:              name,
			UID:               types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour)),
			Labels:            map[string]string{"app": "web", "pod-template-hash": "5d9c7b6f4d"},
		},
		Spec: corev1.PodSpec{
			NodeName:   "node-1",
			Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}},
		},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", Ready: true}},
		},
	}
	ReadySince(Now.Add(-time.Hour))(pod)
	for _, option := range options {
		option(pod)
	}
	return pod
}

// On sets the pod's node. "" means that the pod has none.
func On(node string) Option { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// Phase sets the pod's phase.
func Phase(phase corev1.PodPhase) Option { return func(p *corev1.Pod) { p.Status.Phase = phase } }

// UID sets the pod's UID.
func UID(uid types.UID) Option { return func(p *corev1.Pod) { p.UID = uid } }

// Created sets the pod's creation time.
func Created(at time.Time) Option {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(at) }
}

// Cost sets the pod's deletion-cost annotation.
func Cost(value string) Option {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.PodDeletionCost: value}
	}
}

// Labels replaces the pod's labels.
func Labels(labels map[string]string) Option { return func(p *corev1.Pod) { p.Labels = labels } }

// Deleting sets the pod's deletion timestamp to Now.
func Deleting(p *corev1.Pod) {
	now := metav1.NewTime(Now)
	p.DeletionTimestamp = &now
}

// NotReady sets the pod's Ready condition to False, with Now as its transition time.
func NotReady(p *corev1.Pod) { setReady(p, corev1.ConditionFalse, Now) }

// ReadySince sets the pod's Ready condition to True, with the given transition time, which a zero time leaves out.
func ReadySince(at time.Time) Option {
	return func(p *corev1.Pod) { setReady(p, corev1.ConditionTrue, at) }
}

// Restarts sets the restart count of the pod's first container.
func Restarts(n int32) Option {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = n }
}

// OwnedBy gives the pod a controller reference.
func OwnedBy(owner metav1.Object, apiVersion, kind string) Option {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
			Controller: &yes, BlockOwnerDeletion: &yes,
		}}
	}
}

func setReady(p *corev1.Pod, value corev1.ConditionStatus, at time.Time) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status, c.LastTransitionTime = value, metav1.NewTime(at)
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions,
		corev1.PodCondition{Type: corev1.PodReady, Status: value, LastTransitionTime: metav1.NewTime(at)})
}

// Fleet returns n pods spread over the given number of nodes, each with five conditions, two labels and one container.
// As in a real cluster, many are equal in most criteria of the deletion order, but some are pending, unassigned or not
// ready, some were restarted, and some have a deletion cost. Calls with the same arguments return the same pods.
func Fleet(n, nodes int, seed uint64) []*corev1.Pod {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = fleetPod(r, i, nodes)
	}
	return pods
}

func fleetPod(r *rand.Rand, i, nodes int) *corev1.Pod {
	created := Now.Add(-time.Duration(1+r.IntN(200)) * time.Hour)
	started := created.Add(time.Duration(r.IntN(60)) * time.Second)
	pod := Pod(fmt.Sprintf("web-5d9c7b6f4d-%05d", i),
		UID(types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%012x", r.Uint32(), r.IntN(1<<16), i))),
		On("node-"+strconv.Itoa(r.IntN(max(nodes, 1)))),
		Created(created))
	pod.Status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(started),
		})
	}
	switch r.IntN(20) {
	case 0:
		pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
		setReady(pod, corev1.ConditionFalse, created)
	case 1:
		pod.Status.Phase = corev1.PodPending
		setReady(pod, corev1.ConditionFalse, created)
	case 2:
		setReady(pod, corev1.ConditionFalse, started)
	case 3, 4:
		pod.Status.ContainerStatuses[0].RestartCount = int32(r.IntN(4))
	case 5:
		Cost(strconv.Itoa(r.IntN(5) - 2))(pod)
	}
	return pod
}

// Terminating returns the field terminatingReplicas of a status, or 0 if the status does not have the field.
func Terminating(s appsv1.ReplicaSetStatus) int32 {
	if n := *replicaset.Terminating(&s); n != nil {
		return *n
	}
	return 0
}
