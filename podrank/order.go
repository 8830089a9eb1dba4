package podrank

import (
	"cmp"
	"math/bits"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// A key holds what the order looks at in a pod. It is made once a pod and holds
// no pointer: many are cheap to keep, and to compare.
type key struct {
	head                     uint64 // the first four criteria: one comparison does for all
	rank, restarts, sidecars int32
	readyAge, creationAge    age
}

// The parts of a head, the first criterion uppermost.
const (
	assignedBit = 1 << 35
	phaseShift  = 33
	readyBit    = 1 << 32
	signBit     = 1 << 31 // of the cost, turned: the lowest cost is 0
	costMask    = 0xffff_ffff
)

// read fills in what the order looks at in the pod but its rank. It fills k in
// place, as copying so many small fields would take longer than reading them.
func (k *key) read(p *corev1.Pod, now time.Time) {
	k.head = uint64(phaseOrdinal(p.Status.Phase))<<phaseShift | signBit // a cost of 0
	if p.Spec.NodeName != "" {
		k.head |= assignedBit
	}
	if c := pod.ReadyCondition(p); c != nil && c.Status == corev1.ConditionTrue {
		k.head |= readyBit
		k.readyAge = newAge(&c.LastTransitionTime, now)
	}
	if value, ok := p.Annotations[corev1.PodDeletionCost]; ok {
		cost, _ := parseCost(value)
		k.setCost(cost)
	}
	k.restarts, k.sidecars = containerRestarts(p), sidecarRestarts(p)
	k.creationAge = newAge(&p.CreationTimestamp, now)
}

func (k *key) assigned() bool { return k.head&assignedBit != 0 }
func (k *key) ready() bool    { return k.head&readyBit != 0 }
func (k *key) cost() int32    { return int32(uint32(k.head) ^ signBit) }

func (k *key) setCost(cost int32) {
	k.head = k.head&^costMask | uint64(uint32(cost)^signBit)
}

// headCriterion returns the criterion on which two heads differ first.
func headCriterion(a, b uint64) Criterion {
	switch differ := a ^ b; {
	case differ >= assignedBit:
		return Unassigned
	case differ >= 1<<phaseShift:
		return Phase
	case differ >= readyBit:
		return NotReady
	}
	return DeletionCost
}

// compare is the order: it returns a negative number if pod p goes before pod q,
// a positive one if q goes before p, and the criterion that says so, the first
// on which the two differ. a and b are their keys.
func compare(p, q *corev1.Pod, a, b *key) (Criterion, int) {
	switch {
	case a.head != b.head:
		return headCriterion(a.head, b.head), cmp.Compare(a.head, b.head)
	case a.rank != b.rank:
		return Colocation, cmp.Compare(b.rank, a.rank)
	case a.readyAge != b.readyAge:
		return ReadyTime, cmp.Compare(a.readyAge, b.readyAge)
	case a.readyAge == exact && !readyTime(p).Equal(readyTime(q)):
		return ReadyTime, readyTime(q).Compare(readyTime(p))
	case a.restarts != b.restarts:
		return Restarts, cmp.Compare(b.restarts, a.restarts)
	case a.sidecars != b.sidecars:
		return SidecarRestarts, cmp.Compare(b.sidecars, a.sidecars)
	case a.creationAge != b.creationAge:
		return CreationTime, cmp.Compare(a.creationAge, b.creationAge)
	case a.creationAge == exact && !p.CreationTimestamp.Time.Equal(q.CreationTimestamp.Time):
		return CreationTime, q.CreationTimestamp.Compare(p.CreationTimestamp.Time)
	case p.UID != q.UID:
		return UID, cmp.Compare(p.UID, q.UID)
	case p.Namespace != q.Namespace || p.Name != q.Name:
		return Name, cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
	}
	return None, 0
}

// phaseOrdinal orders the phases (R2): whatever is neither Unknown nor Running
// ranks as Pending does.
func phaseOrdinal(phase corev1.PodPhase) uint8 {
	switch phase {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	}
	return 0
}

// An age is how long ago an instant was, as far as the order tells ages apart
// (R8, R9): how many bits the nanoseconds have.
type age int8

const (
	unknown age = -2  // the instant is zero: before all others
	future  age = -1  // the instant is now, or later
	exact   age = 127 // now is zero: the instants themselves are compared
)

func newAge(t *metav1.Time, now time.Time) age {
	switch {
	case t.IsZero():
		return unknown
	case now.IsZero():
		return exact
	}
	d := elapsed(t.Time, now)
	if d <= 0 {
		return future
	}
	return age(bits.Len64(uint64(d)))
}

// elapsed returns now.Sub(t). Sub proves its result by an addition, which would
// take a third of all the time that a key takes; within a century nothing can
// overflow.
func elapsed(t, now time.Time) time.Duration {
	const century = 3_155_760_000 // seconds
	if s := now.Unix() - t.Unix(); -century < s && s < century {
		return time.Duration(s)*time.Second + time.Duration(now.Nanosecond()-t.Nanosecond())
	}
	return now.Sub(t)
}

// readyTime returns since when a ready pod is ready.
func readyTime(p *corev1.Pod) time.Time { return pod.ReadyCondition(p).LastTransitionTime.Time }

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
