// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ActivePods sorts pods by the six criteria of older Kubernetes releases. The six criteria are
// node, phase, readiness, ready time, restarts and creation time. Deletion cost and co-location are
// not among the six criteria. The pod to delete first comes first. Times are compared exactly. The
// zero time comes first, and of two other times the later one comes first. ActivePods corresponds
// to the type of the same name in Kubernetes' pkg/controller/controller_utils.go.
//
// Pods that are equal by all six criteria count as equal, even if their names differ. So the order
// is not total, and sort.Sort leaves equal pods in any order. A nil pod comes first. To choose
// pods, use Select, which reads each pod once instead of at each comparison.
type ActivePods []*corev1.Pod

// Len returns the number of pods.
func (s ActivePods) Len() int { return len(s) }

// Swap swaps the pods i and j.
func (s ActivePods) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

// Less reports whether pod i goes before pod j.
func (s ActivePods) Less(i, j int) bool {
	p, q := s[i], s[j]
	if p == nil || q == nil {
		return p == nil && q != nil
	}
	return comparePods(early, p, q, time.Time{}) < 0
}

// early holds the six criteria. Restarts and SidecarRestarts count as one of them.
var early = []Criterion[*corev1.Pod]{Unassigned(), Phase(), NotReady(), ReadyTime(), Restarts(), SidecarRestarts(), CreationTime()}

// ActivePodsWithRanks sorts pods in Kubernetes' order, which the package comment describes. The pod
// to delete first comes first. Swap moves each pod together with its rank. ActivePodsWithRanks
// corresponds to the type of the same name in Kubernetes' pkg/controller/controller_utils.go. To
// choose pods, use Select, which reads each pod once instead of at each comparison.
//
// Differs from Kubernetes: the order is total, as the package comment explains. Two pods can be
// equal only if they have the same UID, namespace and name. A nil pod comes first, and a missing
// rank counts as 0. In Kubernetes, a nil pod and a missing rank cause a panic.
type ActivePodsWithRanks struct {
	// Pods are the pods to sort.
	Pods []*corev1.Pod

	// Rank holds the rank of each pod, as ColocationRanks returns it. A pod with a higher rank goes
	// first. Nil means that all ranks are 0. To sort, Rank must be nil or as long as Pods. If Rank
	// is shorter, a rank is lost when its pod moves behind the end of Rank.
	Rank []int

	// Now is the time at which ages are measured. If Now is zero, times are compared exactly. The
	// zero time then comes first, and of two other times the later one comes first.
	Now metav1.Time
}

// Len returns the number of pods.
func (s ActivePodsWithRanks) Len() int { return len(s.Pods) }

// Swap swaps the pods i and j, and their ranks.
func (s ActivePodsWithRanks) Swap(i, j int) {
	s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i]
	ri, rj := s.rank(i), s.rank(j)
	if i < len(s.Rank) {
		s.Rank[i] = rj
	}
	if j < len(s.Rank) {
		s.Rank[j] = ri
	}
}

// Less reports whether pod i goes before pod j.
func (s ActivePodsWithRanks) Less(i, j int) bool {
	p, q := s.Pods[i], s.Pods[j]
	if p == nil || q == nil {
		return p == nil && q != nil
	}
	c := cmp.Or(
		comparePods(beforeRank, p, q, s.Now.Time),
		cmp.Compare(s.rank(j), s.rank(i)),
	)
	if c == 0 {
		c = cmp.Or(comparePods(afterRank, p, q, s.Now.Time), compareIdentity(p, q))
	}
	return c < 0
}

// beforeRank and afterRank are the criteria of Kubernetes() before and after Colocation. The ranks
// replace Colocation.
var (
	colocation = index(kubernetes.criteria, "colocation")
	beforeRank = kubernetes.criteria[:colocation]
	afterRank  = kubernetes.criteria[colocation+1:]
)

func (s ActivePodsWithRanks) rank(i int) int {
	if i < len(s.Rank) {
		return s.Rank[i]
	}
	return 0
}

// comparePods compares two pods by criteria that do not count other pods.
func comparePods(criteria []Criterion[*corev1.Pod], p, q *corev1.Pod, now time.Time) int {
	var two struct { // so that there is only one allocation
		facts Facts[*corev1.Pod]
		pods  [2]*corev1.Pod
		objs  [2]weighed
	}
	two.pods[0], two.pods[1], two.objs[1].place = p, q, 1
	two.facts = Facts[*corev1.Pod]{Now: now, Objects: two.pods[:]}
	for _, c := range criteria {
		for _, weigh := range c.open(two.facts).weigh {
			weigh(&two.facts, two.objs[:])
			if c := cmp.Compare(two.objs[0].weight, two.objs[1].weight); c != 0 {
				return c
			}
		}
	}
	return 0
}
