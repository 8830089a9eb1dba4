// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
)

// IsPodReady reports whether the pod's first condition of type Ready is
// True. A nil pod is not ready.
func IsPodReady(p *corev1.Pod) bool { return pod.IsReady(p) }

// IsPodAvailable reports whether the pod is ready, and has been ready for at least minReadySeconds
// at the given time. If minReadySeconds is 0, every ready pod is available. If minReadySeconds is
// not 0, a pod whose Ready condition has no transition time is never available. A nil pod is not
// available.
func IsPodAvailable(p *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	return pod.IsAvailable(p, minReadySeconds, now)
}

// IsPodActive reports whether the pod counts as a replica. A pod is active if its phase is neither
// Succeeded nor Failed, and it is not being deleted. A nil pod is not active.
func IsPodActive(p *corev1.Pod) bool { return pod.IsActive(p) }

// IsPodTerminating reports whether the pod is being deleted and its phase is
// neither Succeeded nor Failed. A nil pod is not terminating.
func IsPodTerminating(p *corev1.Pod) bool { return pod.IsTerminating(p) }

// FilterActivePods returns a new slice with the pods for which IsPodActive is true, in the same
// order. If there are none, the result is nil.
func FilterActivePods(pods []*corev1.Pod) []*corev1.Pod { return filter(pods, pod.IsActive) }

// FilterTerminatingPods returns a new slice with the pods for which IsPodTerminating is true, in
// the same order. If there are none, the result is nil.
func FilterTerminatingPods(pods []*corev1.Pod) []*corev1.Pod { return filter(pods, pod.IsTerminating) }

// FilterClaimedPods returns a new slice with the pods that are controlled by the owner and match
// the selector, in the same order. The owner controls a pod if the pod's controller reference has
// the owner's UID. If there are no such pods, or if owner or selector is nil, the result is nil.
// FilterClaimedPods does not adopt pods. If neither the owner nor the reference has a UID, for
// example with a fake client, the kind and name are compared. If the owner's TypeMeta is set, the
// group is also compared.
func FilterClaimedPods(owner metav1.Object, selector labels.Selector, pods []*corev1.Pod) []*corev1.Pod {
	if object.IsNil(owner) || selector == nil {
		return nil
	}
	controller := object.OwnerOf(owner, schema.GroupKind{})
	return filter(pods, func(p *corev1.Pod) bool {
		return p != nil && controller.Controls(p) && selector.Matches(labels.Set(p.Labels))
	})
}

// NextAvailabilityCheck returns the time from now until the next ready pod becomes available.
// Calculate the status again after this time. If there is no pod to wait for, the second result is
// false. Pods that are already available, pods that are not active and nil pods are skipped. If the
// time is too long for a Duration, the longest Duration is returned.
//
// Differs from Kubernetes: if no unavailable pod has a transition time, the second result is false.
// In this case, Kubernetes checks again every minReadySeconds, forever.
func NextAvailabilityCheck(pods []*corev1.Pod, minReadySeconds int32, now time.Time) (after time.Duration, ok bool) {
	for _, p := range pods {
		if !pod.IsActive(p) {
			continue
		}
		if wait := pod.AvailableIn(p, minReadySeconds, now); wait > 0 && (!ok || wait < after) {
			after, ok = wait, true
		}
	}
	return after, ok
}

func filter(pods []*corev1.Pod, keep func(*corev1.Pod) bool) []*corev1.Pod {
	var kept []*corev1.Pod
	for _, p := range pods {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	return kept
}
