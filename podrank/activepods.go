// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ActivePods implements sort.Interface with the order of older Kubernetes releases. The first pod
// in this order is the first pod to delete. The order has six criteria, which are node, phase,
// readiness, ready time, restarts and creation time. The order ignores the deletion cost and
// co-location. Times are compared exactly. Later times come first, but the zero time comes before
// all other times. ActivePods corresponds to the type of the same name in Kubernetes'
// pkg/controller/controller_utils.go.
//
// Two pods are equal if they are equal in all six criteria, even if their names differ. The order
// of equal pods after sort.Sort is not specified. A nil pod comes first. To choose pods to delete,
// use Select instead, because Select does not evaluate the pods again in each comparison.
type ActivePods []*corev1.Pod

// Len returns the number of pods.
func (s ActivePods) Len() int { return len(s) }

// Swap swaps the pods i and j.
func (s ActivePods) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

// Less reports whether pod i comes before pod j.
func (s ActivePods) Less(i, j int) bool {
	p, q := s[i], s[j]
	if p == nil || q == nil {
		return p == nil && q != nil
	}
	return comparePods(early, p, q, time.Time{}) < 0
}

// early holds the six criteria of ActivePods. Restarts and SidecarRestarts count as one criterion.
var early = []Criterion[*corev1.Pod]{Unassigned(), Phase(), NotReady(), ReadyTime(), Restarts(), SidecarRestarts(), CreationTime()}

// ActivePodsWithRanks implements sort.Interface with Kubernetes' order, which the package comment
// describes. The first pod in this order is the first pod to delete. Swap moves each pod together
// with its rank. ActivePodsWithRanks corresponds to the type of the same name in Kubernetes'
// pkg/controller/controller_utils.go. To choose pods to delete, use Select instead, because it does
// not evaluate the pods again in each comparison.
//
// Differs from Kubernetes: the order is total, as the package comment explains. Two pods can be
// equal only if they have the same UID, namespace and name. A nil pod comes first, and a missing
// rank counts as 0. In Kubernetes, a nil pod or a missing rank causes a panic.
type ActivePodsWithRanks struct {
	// Pods holds the pods to sort.
	Pods []*corev1.Pod

	// Rank holds the rank of each pod, as ColocationRanks returns it. A pod with a higher rank
	// comes first. If Rank is nil, all ranks are 0. Before you sort, make sure that Rank is nil or
	// has the same length as Pods. If Rank is shorter than Pods, a pod loses its rank when the pod
	// is swapped to an index beyond the end of Rank.
	Rank []int

	// Now is the time from which ages are computed. If Now is zero, times are compared exactly, as
	// in ActivePods.
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

// Less reports whether pod i comes before pod j.
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

// beforeRank holds the criteria of Kubernetes() that come before Colocation, and afterRank holds
// the criteria that come after Colocation. ActivePodsWithRanks uses its field Rank instead of
// Colocation.
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

// comparePods compares two pods by criteria that do not depend on other pods.
func comparePods(criteria []Criterion[*corev1.Pod], p, q *corev1.Pod, now time.Time) int {
	var two struct { // one struct, so that there is only one allocation
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
