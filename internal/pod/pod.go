// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod contains the pod predicates that several packages of the library need. Each predicate returns
// false for a nil pod.
package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// IsFinished reports whether the pod's phase is Succeeded or Failed. The containers of such a pod will not
// run again.
func IsFinished(pod *corev1.Pod) bool {
	return pod != nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// IsActive reports whether the pod counts as a replica (Y6). A pod counts if it is not finished and not being
// deleted.
func IsActive(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && !IsFinished(pod)
}

// IsTerminating reports whether the pod is being deleted and is not finished (T8).
func IsTerminating(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp != nil && !IsFinished(pod)
}

// ReadyCondition returns the pod's first condition of type Ready, or nil. The returned condition is part of
// the pod and must not be changed.
func ReadyCondition(pod *corev1.Pod) *corev1.PodCondition {
	if pod == nil {
		return nil
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c
		}
	}
	return nil
}

// IsReady reports whether the pod's first condition of type Ready is True (R3).
func IsReady(pod *corev1.Pod) bool {
	c := ReadyCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue
}

// NotReadySince returns the time at which a pod stopped being ready. This is the transition time of the pod's
// Ready condition. If the condition or its transition time is missing, NotReadySince returns the creation
// time of the pod.
func NotReadySince(pod *corev1.Pod) time.Time {
	switch c := ReadyCondition(pod); {
	case pod == nil:
		return time.Time{}
	case c != nil && !c.LastTransitionTime.IsZero():
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// IsAvailable reports whether the pod is ready, and has been ready for at least minReadySeconds at the
// instant now (T5).
func IsAvailable(pod *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	c := ReadyCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue && IsReadySince(c, minReadySeconds, LatestReady(minReadySeconds, now))
}

// IsReadySince reports whether a pod with the given Ready condition is available. The condition must be True.
// The argument latest is the result of LatestReady. The pod is available if it became ready at this instant
// or earlier. If minReadySeconds is 0, every ready pod is available. Otherwise a pod whose Ready condition
// has no transition time is never available (T6, T7).
func IsReadySince(ready *corev1.PodCondition, minReadySeconds int32, latest time.Time) bool {
	return minReadySeconds == 0 || !ready.LastTransitionTime.IsZero() && !ready.LastTransitionTime.After(latest)
}

// LatestReady returns the instant that is minReadySeconds before now. A ready pod is available if it became
// ready at this instant or earlier.
func LatestReady(minReadySeconds int32, now time.Time) time.Time {
	return now.Add(-time.Duration(minReadySeconds) * time.Second)
}

// AvailableIn returns the time from now until a ready pod becomes available. If the pod is already available,
// the result is 0. The result is also 0 if only a change of the pod can make it available (M1, M3).
func AvailableIn(pod *corev1.Pod, minReadySeconds int32, now time.Time) time.Duration {
	c := ReadyCondition(pod)
	if minReadySeconds <= 0 || c == nil || c.Status != corev1.ConditionTrue || c.LastTransitionTime.IsZero() {
		return 0
	}
	return max(c.LastTransitionTime.Add(time.Duration(minReadySeconds)*time.Second).Sub(now), 0)
}
