// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/bits"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
)

// A tie is the pods order[from:to]. The field goes says how many of these pods go, but it cannot be
// known which.
type tie struct {
	from, to, goes int
	cause
}

// A cause says why it cannot be known which pods of a tie go, and how each controller chooses them.
type cause struct {
	Reason     string `json:"reason"`
	Kubernetes string `json:"kube-controller-manager"`
	Ours       string `json:"replicakit-controller"`
}

var (
	alike = cause{
		"Kubernetes' order does not distinguish them, because it compares ages only by their power of two",
		"the order of its cache, or UID", "what else differs, then UID",
	}
	shifted = cause{
		"how many pods share their nodes depends on pods that go before them, which are not certain",
		"the order of its cache, and timing", "timing",
	}
)

func (c cause) String() string {
	return fmt.Sprintf("%s; kube-controller-manager chooses by %s, replicakit-controller by %s", c.Reason, c.Kubernetes, c.Ours)
}

// coarse are the criteria whose values do not change while time passes or other pods are deleted.
// fine are the criteria whose values do not change while time passes.
var (
	coarse = map[string]bool{"unassigned": true, "phase": true, "not-ready": true, "deletion-cost": true}
	fine   = map[string]bool{"unassigned": true, "phase": true, "not-ready": true, "deletion-cost": true, "colocation": true}
)

// class returns the bounds of the pods around the cut that are equal in all criteria. class also
// reports whether there are equal pods on both sides of the cut. order[:cut] are the pods that go.
func class(order []podrank.Victim[*corev1.Pod], cut int, criteria map[string]bool) (from, to int, ok bool) {
	if cut <= 0 || cut >= len(order) || criteria[order[cut-1].Criterion] {
		return cut, cut, false
	}
	from, to = cut-1, cut+1
	for from > 0 && !criteria[order[from-1].Criterion] {
		from--
	}
	for to < len(order) && !criteria[order[to-1].Criterion] {
		to++
	}
	return from, to, true
}

// A pass is one pass of a controller. order has the pods that are left before the pass, and the
// pass deletes order[:cut].
type pass struct {
	order []podrank.Victim[*corev1.Pod]
	cut   int
}

// tie returns the group of pods that the cut divides, and whether there is one. The pods of a group
// may change places with each other. All pods of one group certainly go before all pods of the next
// group, so the cut divides at most one group.
func (w window) tie(p pass) (t tie, ok bool) {
	from, to, ok := class(p.order, p.cut, fine)
	if !ok {
		return tie{}, false
	}
	members := candidates(p.order[from:to])
	start, reach := 0, 0
	for i := range members {
		if i > reach {
			start, reach = i, i
		}
		if from+i >= p.cut && start == i {
			return tie{}, false
		}
		for j := len(members) - 1; j > reach; j-- {
			if !w.sure(&members[i], &members[j]) {
				reach = j
			}
		}
		if i == reach && from+i >= p.cut {
			break
		}
	}
	if from+reach < p.cut {
		return tie{}, false
	}
	return tie{from + start, from + reach + 1, p.cut - from - start, alike}, true
}

// A candidate has the values that decide between pods that are equal in all fine criteria.
type candidate struct {
	uid            types.UID
	ready, created time.Time
	restarts       int // a number that pods share if their ready times and restarts are equal
}

func candidates(order []podrank.Victim[*corev1.Pod]) []candidate {
	list := make([]candidate, len(order))
	restarts := 0
	for i, v := range order {
		list[i] = candidate{v.Object.UID, readySince(v.Object), v.Object.CreationTimestamp.Time, restarts}
		switch v.Criterion {
		case "ready-time", "restarts", "sidecar-restarts":
			restarts++
		}
	}
	return list
}

// readySince returns the time at which the pod became ready. For a pod that is not ready, the time
// is zero.
func readySince(p *corev1.Pod) time.Time {
	if !pod.IsReady(p) {
		return time.Time{}
	}
	return pod.ReadyCondition(p).LastTransitionTime.Time
}

// A window is the time span in which the scaling may happen.
type window struct{ start, end time.Time }

// sure reports whether kube-controller-manager puts p before q during the whole window. In our
// order, q comes after p. kube-controller-manager first compares how long the pods have been ready.
// If the pods became ready at the same instant, kube-controller-manager compares their restarts,
// and then how long ago the pods were created. If the times of two pods differ, but the two ages
// have the same power of two, the UIDs decide.
func (w window) sure(p, q *candidate) bool {
	switch {
	case !p.ready.Equal(q.ready):
		return w.sureByAge(p, q, p.ready, q.ready)
	case p.restarts != q.restarts:
		return true
	case !p.created.Equal(q.created):
		return w.sureByAge(p, q, p.created, q.created)
	}
	return false
}

func (w window) sureByAge(p, q *candidate, since, other time.Time) bool {
	switch {
	case since.IsZero() || other.IsZero():
		return true
	case since.Before(other): // the ages are alike now, so the UIDs decide; later the younger pod may go first
		return p.uid < q.uid && w.always(since, other, true)
	}
	return p.uid < q.uid || w.always(since, other, false)
}

// always reports whether the ages of a and b are alike during the whole window. If alike is false,
// always reports whether the ages differ during the whole window. The result can change only when
// one of the ages reaches a power of two.
func (w window) always(a, b time.Time, alike bool) bool {
	if (power(a, w.start) == power(b, w.start)) != alike {
		return false
	}
	for _, since := range []time.Time{a, b} {
		for n := max(0, power(since, w.start)); n < 62; n++ {
			moment := since.Add(1 << n)
			if moment.After(w.end) {
				break
			}
			if moment.After(w.start) && (power(a, moment) == power(b, moment)) != alike {
				return false
			}
		}
	}
	return true
}

// power returns the number of bits of an age in nanoseconds. Ages with the same number of bits are
// alike.
func power(since, now time.Time) int { return bits.Len64(uint64(max(0, now.Sub(since)))) }
