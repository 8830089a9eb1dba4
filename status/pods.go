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

// IsPodAvailable reports whether the pod has been ready for minReadySeconds at
// the instant now; it is from the very instant that they have passed. With
// minReadySeconds of 0 every ready pod is available; otherwise one whose Ready
// condition has no transition time never is, whether minReadySeconds are
// positive or negative. A nil pod is not available.
func IsPodAvailable(p *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	return pod.IsAvailable(p, minReadySeconds, now)
}

// IsPodActive reports whether the pod counts as a replica: its phase is neither
// Succeeded nor Failed, and it is not being deleted. A nil pod is not active.
func IsPodActive(p *corev1.Pod) bool { return pod.IsActive(p) }

// IsPodTerminating reports whether the pod is being deleted and its phase is
// neither Succeeded nor Failed. A nil pod is not terminating.
func IsPodTerminating(p *corev1.Pod) bool { return pod.IsTerminating(p) }

// FilterActivePods returns the pods that IsPodActive, in the same order, in a
// new slice; nil if there are none.
func FilterActivePods(pods []*corev1.Pod) []*corev1.Pod { return filter(pods, pod.IsActive) }

// FilterTerminatingPods returns the pods that IsPodTerminating, in the same
// order, in a new slice; nil if there are none.
func FilterTerminatingPods(pods []*corev1.Pod) []*corev1.Pod { return filter(pods, pod.IsTerminating) }

// FilterClaimedPods returns the pods whose controller reference has the owner's
// UID and whose labels the selector matches, in the same order, in a new slice;
// nil if there are none, or no owner, or no selector. Nothing is adopted. If
// neither the owner nor the reference has a UID, as with fake clients, kind and
// name decide, and the group if the owner tells its own.
func FilterClaimedPods(owner metav1.Object, selector labels.Selector, pods []*corev1.Pod) []*corev1.Pod {
	if object.IsNil(owner) || selector == nil {
		return nil
	}
	controller := object.OwnerOf(owner, schema.GroupKind{})
	return filter(pods, func(p *corev1.Pod) bool {
		return p != nil && controller.Controls(p) && selector.Matches(labels.Set(p.Labels))
	})
}

// NextAvailabilityCheck returns how long after now the first of the pods that
// are ready but not yet available becomes available, which is when to calculate
// the status again; ok is false if there is none to wait for. It is the
// pod's exact instant: a pod that IsPodAvailable at now is not waited for. Pods
// that are not active and nil pods are not looked at. An instant too far ahead
// for a Duration gives the longest one.
//
// Differs from Kubernetes: if all unavailable pods lack a transition time,
// there is nothing to wait for, instead of a check every minReadySeconds for
// ever.
func NextAvailabilityCheck(pods []*corev1.Pod, minReadySeconds int32, now time.Time) (after time.Duration, ok bool) {
	if minReadySeconds <= 0 {
		return 0, false
	}
	for _, p := range pods {
		c := pod.ReadyCondition(p)
		if !pod.IsActive(p) || !isTrue(c) || c.LastTransitionTime.IsZero() {
			continue
		}
		wait := availableFrom(c, minReadySeconds).Sub(now)
		if wait > 0 && (!ok || wait < after) {
			after, ok = wait, true
		}
	}
	return after, ok
}

func isTrue(c *corev1.PodCondition) bool { return c != nil && c.Status == corev1.ConditionTrue }

// availableFrom returns the first instant at which a ready pod is available.
func availableFrom(ready *corev1.PodCondition, minReadySeconds int32) time.Time {
	return ready.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second)
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
