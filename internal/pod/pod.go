// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod holds the few pod predicates that several packages of the
// library need. A nil pod answers false to all of them.
package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// IsFinished reports whether the pod's phase is Succeeded or Failed: its
// containers will not run again.
func IsFinished(pod *corev1.Pod) bool {
	return pod != nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// IsActive reports whether the pod counts as a replica: it is neither finished
// nor being deleted (Y6).
func IsActive(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && !IsFinished(pod)
}

// IsTerminating reports whether the pod is being deleted and not finished yet
// (T8).
func IsTerminating(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp != nil && !IsFinished(pod)
}

// ReadyCondition returns the pod's first condition of type Ready, or nil. It
// points into the pod: read only.
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

// IsReady reports whether the first condition of type Ready is True
// (R3).
func IsReady(pod *corev1.Pod) bool {
	c := ReadyCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue
}

// NotReadySince returns since when a pod that is not ready has been so: since its Ready condition
// changed or, if it has none, since it was created.
func NotReadySince(pod *corev1.Pod) time.Time {
	switch c := ReadyCondition(pod); {
	case pod == nil:
		return time.Time{}
	case c != nil && !c.LastTransitionTime.IsZero():
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// IsAvailable reports whether the pod has been ready for minReadySeconds at the
// instant now; it is from the very instant that they have passed (T5).
func IsAvailable(pod *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	c := ReadyCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue && IsReadySince(c, minReadySeconds, LatestReady(minReadySeconds, now))
}

// IsReadySince reports whether a pod whose Ready condition is True is available:
// whether it has been ready since latest, which LatestReady returns. With
// minReadySeconds of 0 every ready pod is; otherwise one whose condition has no
// transition time never is (T6, T7).
func IsReadySince(ready *corev1.PodCondition, minReadySeconds int32, latest time.Time) bool {
	return minReadySeconds == 0 || !ready.LastTransitionTime.IsZero() && !ready.LastTransitionTime.After(latest)
}

// LatestReady returns the latest instant at which a pod may have become ready to
// be available now.
func LatestReady(minReadySeconds int32, now time.Time) time.Time {
	return now.Add(-time.Duration(minReadySeconds) * time.Second)
}

// AvailableIn returns how long it takes, counted from now, until a ready pod becomes
// available; 0 if it is available already, or will not become so by itself (M1, M3).
func AvailableIn(pod *corev1.Pod, minReadySeconds int32, now time.Time) time.Duration {
	c := ReadyCondition(pod)
	if minReadySeconds <= 0 || c == nil || c.Status != corev1.ConditionTrue || c.LastTransitionTime.IsZero() {
		return 0
	}
	return max(c.LastTransitionTime.Add(time.Duration(minReadySeconds)*time.Second).Sub(now), 0)
}
