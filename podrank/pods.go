package podrank

import (
	"cmp"
	"math"
	"math/bits"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// Kubernetes' criteria for pods, as pkg/controller/controller_utils.go has them.

// Unassigned puts pods without a node first.
func Unassigned() Criterion[*corev1.Pod] {
	return flag("unassigned", "unassigned", "assigned", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" }) // (R1)
}

// Phase puts Pending pods first, then Unknown ones, then Running ones. Whatever
// is none of these counts as Pending.
func Phase() Criterion[*corev1.Pod] {
	show := func(p *corev1.Pod) string { return cmp.Or(string(p.Status.Phase), "none") }
	return number("phase", "phase "+victimHere+" < "+survivorHere, phaseOrdinal, show)
}

// phaseOrdinal orders the phases (R2).
func phaseOrdinal(p *corev1.Pod) int64 {
	switch p.Status.Phase {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	}
	return 0
}

// NotReady puts pods first that are not ready: whose first condition of type
// Ready is not True.
func NotReady() Criterion[*corev1.Pod] {
	return flag("not-ready", "not ready", "ready", func(p *corev1.Pod) bool { return !pod.IsReady(p) }) // (R3)
}

// ReadyTime puts pods first that have been ready for less time. Times are
// compared as the package comment says: by the power of two that their age
// reaches or, if Options.Now is zero, as they are. The zero instant comes before
// all others, and a pod that is not ready before all that are.
func ReadyTime() Criterion[*corev1.Pod] {
	return ages("ready-time", "ready for ", "ready time ", readyTime)
}

// readyTime returns since when the pod is ready, if it is (R7).
func readyTime(p *corev1.Pod) (since time.Time, ready bool) {
	if c := pod.ReadyCondition(p); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time, true
	}
	return time.Time{}, false
}

// CreationTime puts younger pods first. Times are compared as by ReadyTime. See
// Newest for times compared as they are.
func CreationTime() Criterion[*corev1.Pod] { // (R11)
	return ages("creation-time", "age ", "creation time ", func(p *corev1.Pod) (time.Time, bool) { return p.CreationTimestamp.Time, true })
}

// Restarts puts pods first of which a container has restarted more often: the
// most restarts of any regular container count.
func Restarts() Criterion[*corev1.Pod] {
	return restarts("restarts", " restart", containerRestarts)
}

// SidecarRestarts puts pods first of which a sidecar has restarted more often: an
// init container with restartPolicy Always.
func SidecarRestarts() Criterion[*corev1.Pod] {
	return restarts("sidecar-restarts", " sidecar restart", sidecarRestarts)
}

// containerRestarts returns the most restarts of any regular container (R10).
func containerRestarts(p *corev1.Pod) int32 {
	var most int32
	for i := range p.Status.ContainerStatuses {
		most = max(most, p.Status.ContainerStatuses[i].RestartCount)
	}
	return most
}

// sidecarRestarts returns the most restarts of any sidecar (R10).
func sidecarRestarts(p *corev1.Pod) int32 {
	var most int32
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; s.RestartCount > most && isSidecar(p, s.Name) {
			most = s.RestartCount
		}
	}
	return most
}

// isSidecar reports whether the spec has an init container of that name which is
// restarted always: other init containers are over when the pod runs.
func isSidecar(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return true
		}
	}
	return false
}

func restarts(name, unit string, of func(*corev1.Pod) int32) Criterion[*corev1.Pod] {
	one, more := victimHere+unit+" > "+survivorHere, victimHere+unit+"s > "+survivorHere
	col := column[*corev1.Pod]{
		weigh: func(_ time.Time, _ int, p *corev1.Pod) (int64, int64) { return -int64(of(p)), 0 },
		value: func(_ time.Time, _ int, p *corev1.Pod) string { return strconv.Itoa(int(of(p))) },
		phrase: func(_ time.Time, _ int, p *corev1.Pod) string {
			if of(p) == 1 {
				return one
			}
			return more
		},
	}
	return Criterion[*corev1.Pod]{name: name, open: func(Facts[*corev1.Pod]) column[*corev1.Pod] { return col }}
}

// number returns a criterion that weighs by a number, the lower going first.
func number[T any](name, phrase string, of func(T) int64, show func(T) string) Criterion[T] {
	col := column[T]{
		weigh: func(_ time.Time, _ int, obj T) (int64, int64) { return of(obj), 0 },
		value: func(_ time.Time, _ int, obj T) string { return show(obj) },
	}
	return Criterion[T]{name: name, phrase: phrase, open: func(Facts[T]) column[T] { return col }}
}

// ages returns a criterion by which the later instant goes first, as Kubernetes
// compares instants.
func ages(name, age, instant string, at func(*corev1.Pod) (time.Time, bool)) Criterion[*corev1.Pod] {
	col := column[*corev1.Pod]{
		weigh: func(now time.Time, _ int, p *corev1.Pod) (int64, int64) {
			t, ok := at(p)
			if !ok {
				return noAge, 0
			}
			return weighAge(t, now)
		},
		value: func(now time.Time, _ int, p *corev1.Pod) string {
			t, ok := at(p)
			if !ok {
				return "not ready"
			}
			return timeText(t, now)
		},
		phrase: func(now time.Time, _ int, p *corev1.Pod) string {
			switch t, ok := at(p); {
			case !ok:
				return victimHere
			case t.IsZero():
				return instant + victimHere
			case now.IsZero():
				return instant + victimHere + " > " + survivorHere
			}
			return age + victimHere + " < " + survivorHere
		},
	}
	exact := col
	exact.minor = true
	open := func(facts Facts[*corev1.Pod]) column[*corev1.Pod] {
		if facts.Now.IsZero() {
			return exact
		}
		return col
	}
	return Criterion[*corev1.Pod]{name: name, open: open}
}

// Weights of what has no age, before all that has one.
const (
	noAge      = math.MinInt64     // there is no such instant
	unknownAge = math.MinInt64 + 1 // the instant is zero
)

// weighAge weighs how long ago an instant was, as far as Kubernetes tells ages
// apart (R8, R9): by how many bits the nanoseconds have, and instants to come
// alike. If now is zero, the later instant is the lighter.
func weighAge(t, now time.Time) (major, minor int64) {
	switch {
	case t.IsZero():
		return unknownAge, 0
	case now.IsZero():
		return -t.Unix(), -int64(t.Nanosecond())
	}
	if age := now.Sub(t); age > 0 {
		return int64(bits.Len64(uint64(age))), 0
	}
	return 0, 0
}
