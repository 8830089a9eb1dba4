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

// A tie is the set of pods order[from:to]. goes of them go, and it cannot be known which.
type tie struct {
	from, to, goes int
	cause
}

// A cause says why it cannot be known which pods of a set go, and how each controller chooses.
type cause struct {
	Reason     string `json:"reason"`
	Kubernetes string `json:"kube-controller-manager"`
	Ours       string `json:"replicakit-controller"`
}

var (
	alike = cause{
		"Kubernetes' order does not distinguish them, ages counting up to a power of two",
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

// coarse are the criteria that neither time nor the deletion of other pods changes. fine
// are those that time does not change.
var (
	coarse = map[string]bool{"unassigned": true, "phase": true, "not-ready": true, "deletion-cost": true}
	fine   = map[string]bool{"unassigned": true, "phase": true, "not-ready": true, "deletion-cost": true, "colocation": true}
)

// class returns the bounds of the pods around a cut of the order that the criteria do not separate,
// and whether the cut goes through them.
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

// A pass is what a controller deletes at once. It is order[:cut] of the pods that are left then.
type pass struct {
	order []podrank.Victim[*corev1.Pod]
	cut   int
}

// tie returns the pods that are undecided at the cut, and whether there are any. A group is
// undecided if each of its pods may change places with the next. It is certain that all pods of one
// group go before all of another, so the cut goes through at most one group.
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

// A candidate has what decides between pods that are equal in all fine criteria.
type candidate struct {
	uid            types.UID
	ready, created time.Time
	restarts       int // equal for pods with the same ready time and restarts
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

// readySince returns the time at which the pod became ready. It is zero for a pod that is not
// ready.
func readySince(p *corev1.Pod) time.Time {
	if !pod.IsReady(p) {
		return time.Time{}
	}
	return pod.ReadyCondition(p).LastTransitionTime.Time
}

// A window is the time in which you may scale.
type window struct{ start, end time.Time }

// sure reports whether kube-controller-manager puts p before q, which comes later in our order, at
// any time of the window. It compares the ages since the pods were ready. If these instants are
// equal, it compares restarts, and then the ages since they were created. If two ages differ, but
// have the same power of two, the UIDs decide at once.
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
	case since.Before(other): // alike now, so UIDs decide; later the younger may be first
		return p.uid < q.uid && w.always(since, other, true)
	}
	return p.uid < q.uid || w.always(since, other, false)
}

// always reports whether the two ages are alike, or differ, during the whole window. That changes
// only when one of them reaches a power of two.
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

// power is the number of bits of an age in nanoseconds.
func power(since, now time.Time) int { return bits.Len64(uint64(max(0, now.Sub(since)))) }
