// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"math"
	"math/bits"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// The functions below return Kubernetes' criteria for pods. Kubernetes defines these criteria in
// pkg/controller/controller_utils.go.

// Unassigned puts pods without a node first.
func Unassigned() Criterion[*corev1.Pod] {
	return flag("unassigned", "unassigned", "assigned", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" }) // (R1)
}

// Phase puts Pending pods first, then Unknown pods, then Running pods. Any other phase counts as
// Pending.
func Phase() Criterion[*corev1.Pod] {
	show := func(text []byte, p *corev1.Pod) []byte {
		return append(text, cmp.Or(string(p.Status.Phase), "none")...)
	}
	return number("phase", "phase "+victimHere+" < "+survivorHere, phaseOrdinal, show)
}

// phaseOrdinal returns the position of the pod's phase in the order of phases (R2).
func phaseOrdinal(p *corev1.Pod) int64 {
	switch p.Status.Phase {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	}
	return 0
}

// NotReady puts pods that are not ready before ready pods. A pod is ready if its first condition of
// type Ready is True.
func NotReady() Criterion[*corev1.Pod] {
	return flag("not-ready", "not ready", "ready", func(p *corev1.Pod) bool { return !pod.IsReady(p) }) // (R3)
}

// ReadyTime puts pods with a later ready time first. Times are compared by age, with the rounding
// that the package comment describes. If Options.Now is zero, times are compared exactly. A pod
// whose ready time is zero comes before pods with any other ready time. Pods that are not ready
// come before ready pods.
func ReadyTime() Criterion[*corev1.Pod] {
	return ages("ready-time", "ready for ", "ready time ", readySince)
}

// readySince returns the time at which the pod became ready, or nil if the pod is not ready (R7).
func readySince(p *corev1.Pod) *metav1.Time {
	if c := pod.ReadyCondition(p); c != nil && c.Status == corev1.ConditionTrue {
		return &c.LastTransitionTime
	}
	return nil
}

// CreationTime puts younger pods first. CreationTime compares times in the same way as ReadyTime.
// Newest compares creation times exactly.
func CreationTime() Criterion[*corev1.Pod] { // (R11)
	return ages("creation-time", "age ", "creation time ", func(p *corev1.Pod) *metav1.Time { return &p.CreationTimestamp })
}

// Restarts puts pods with more restarts first. The number of restarts of a pod is the highest
// restart count of its regular containers.
func Restarts() Criterion[*corev1.Pod] {
	return restarts("restarts", " restart", containerRestarts)
}

// SidecarRestarts puts pods with more sidecar restarts first. The number of sidecar restarts of a
// pod is the highest restart count of its sidecars. A sidecar is an init container with
// restartPolicy Always.
func SidecarRestarts() Criterion[*corev1.Pod] {
	return restarts("sidecar-restarts", " sidecar restart", sidecarRestarts)
}

// containerRestarts returns the highest restart count of the regular containers (R10).
func containerRestarts(p *corev1.Pod) int32 {
	var most int32
	for i := range p.Status.ContainerStatuses {
		most = max(most, p.Status.ContainerStatuses[i].RestartCount)
	}
	return most
}

// sidecarRestarts returns the highest restart count of the sidecars (R10).
func sidecarRestarts(p *corev1.Pod) int32 {
	var most int32
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; s.RestartCount > most && isSidecar(p, s.Name) {
			most = s.RestartCount
		}
	}
	return most
}

// isSidecar reports whether the pod has an init container with this name and restartPolicy Always.
// All other init containers have ended when the pod is running.
func isSidecar(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && c.Name == name && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return true
		}
	}
	return false
}

func restarts(name, unit string, of func(*corev1.Pod) int32) Criterion[*corev1.Pod] {
	one, more := victimHere+unit+" > "+survivorHere, victimHere+unit+"s > "+survivorHere
	col := &column[*corev1.Pod]{
		weigh: []weigher[*corev1.Pod]{each(func(p *corev1.Pod) int64 { return weighRestarts(of(p)) })},
		value: func(text []byte, _ time.Time, _ int, p *corev1.Pod) []byte {
			return strconv.AppendInt(text, int64(of(p)), 10)
		},
		phrase: func(_ time.Time, _ int, p *corev1.Pod) (phrase, detail string) {
			if of(p) == 1 {
				return one, ""
			}
			return more, ""
		},
	}
	return Criterion[*corev1.Pod]{name: name, open: func(Facts[*corev1.Pod]) *column[*corev1.Pod] { return col }}
}

// weighRestarts returns a lower weight for more restarts, so that pods with more restarts come
// first.
func weighRestarts(n int32) int64 { return -int64(n) }

// number returns a criterion that puts the object with the lower number first.
func number[T any](name, phrase string, of func(T) int64, show func(text []byte, obj T) []byte) Criterion[T] {
	col := &column[T]{
		weigh: []weigher[T]{each(of)},
		value: func(text []byte, _ time.Time, _ int, obj T) []byte { return show(text, obj) },
	}
	return Criterion[T]{name: name, phrase: phrase, open: func(Facts[T]) *column[T] { return col }}
}

// ages returns a criterion that puts the pod with the later time first. Times are compared as in
// Kubernetes. The time of a pod p is at(p), which is nil if the pod has no such time.
func ages(name, age, instant string, at func(*corev1.Pod) *metav1.Time) Criterion[*corev1.Pod] {
	aged := age + victimHere + " < " + survivorHere
	exact, unknown := instant+victimHere+" > "+survivorHere, instant+victimHere
	aging := &column[*corev1.Pod]{
		weigh: []weigher[*corev1.Pod]{eachAt(func(p *corev1.Pod, now time.Time) int64 { return weighAge(at(p), now) })},
		value: func(text []byte, now time.Time, _ int, p *corev1.Pod) []byte {
			if t := at(p); t != nil {
				return appendTime(text, t.Time, now)
			}
			return append(text, "not ready"...)
		},
		phrase: func(now time.Time, _ int, p *corev1.Pod) (phrase, detail string) {
			switch t := at(p); {
			case t == nil:
				return victimHere, ""
			case t.IsZero():
				return unknown, ""
			case now.IsZero():
				return exact, ""
			}
			return aged, ""
		},
	}
	precise := *aging
	precise.weigh = []weigher[*corev1.Pod]{
		each(func(p *corev1.Pod) int64 { return weighSecond(at(p)) }),
		each(func(p *corev1.Pod) int64 { return weighNanosecond(at(p)) }),
	}
	open := func(facts Facts[*corev1.Pod]) *column[*corev1.Pod] {
		if facts.Now.IsZero() {
			return &precise
		}
		return aging
	}
	return Criterion[*corev1.Pod]{name: name, open: open}
}

// weighSecond returns the weight of a time without its nanoseconds. A later time has a lower
// weight. The zero time has a lower weight than any other time, and nil has the lowest weight.
func weighSecond(t *metav1.Time) int64 {
	switch {
	case t == nil:
		return math.MinInt64
	case t.IsZero():
		return math.MinInt64 + 1
	}
	return -t.Unix()
}

// weighNanosecond returns the weight of the nanoseconds of a time.
func weighNanosecond(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return -int64(t.Nanosecond())
}

// weighAge returns the weight of a time t. The weight depends on the bit length of the age in
// nanoseconds. The age is the time from t until now. Kubernetes compares ages with the same
// precision (R8, R9). All times in the future have the same weight. As in weighSecond, nil has the
// lowest weight, followed by the zero time.
func weighAge(t *metav1.Time, now time.Time) int64 {
	switch {
	case t == nil:
		return 0
	case t.IsZero():
		return 1
	}
	return 2 + int64(bits.Len64(uint64(max(0, now.Sub(t.Time)))))
}
