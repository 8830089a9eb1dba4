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

// A tie is a group of pods of which only some are deleted, and it cannot be known which ones. The
// group is order[from:to]. The value of tie.goes is the number of pods in the group that are
// deleted.
type tie struct {
	from, to, goes int
	cause
}

// A cause explains why the plugin cannot predict which pods of a tie are deleted, and how each
// controller chooses them.
type cause struct {
	Reason     string `json:"reason"`
	Kubernetes string `json:"kube-controller-manager"`
	Ours       string `json:"replicakit-controller"`
}

var (
	alike = cause{
		"Kubernetes' order, which compares ages only by their power of two, does not distinguish them",
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

// The variable fine holds the criteria that are compared before any criterion that depends on the
// time. The variable coarse holds the same criteria except colocation, which depends on other pods.
// The variable assigned holds the criterion that needs neither a status nor metadata.
var (
	assigned = map[string]bool{"unassigned": true}
	coarse   = map[string]bool{"unassigned": true, "phase": true, "not-ready": true, "deletion-cost": true}
	fine     = map[string]bool{"unassigned": true, "phase": true, "not-ready": true, "deletion-cost": true, "colocation": true}
)

// class compares the pods on both sides of the cut. The pods in order[:cut] are deleted, and the
// others stay. If the last deleted pod and the first pod that stays are equal in all given
// criteria, ok is true. Then order[from:to] contains all pods that are equal to the last deleted
// pod and to the first pod that stays.
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

// A pass is one pass of a controller over its pods. The slice order contains all pods that count as
// replicas before the pass, and the first pod to delete is order[0]. The pass deletes order[:cut].
type pass struct {
	order []podrank.Victim[*corev1.Pod]
	cut   int
}

// tie divides the pods into groups. The order within a group is uncertain, but each group certainly
// comes before the next one. So at most one group contains both deleted pods and other pods. tie
// returns this group. If there is no such group, ok is false.
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

// A candidate holds the values of a pod that kube-controller-manager compares last. Two candidates
// are compared only if their pods are equal in all criteria in the variable fine.
type candidate struct {
	uid            types.UID
	ready, created time.Time
	restarts       int // a rank; two pods have the same rank if their ready times and restart counts are equal
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

// readySince returns the time at which the pod became ready, or the zero time if the pod is not
// ready.
func readySince(p *corev1.Pod) time.Time {
	if !pod.IsReady(p) {
		return time.Time{}
	}
	return pod.ReadyCondition(p).LastTransitionTime.Time
}

// A window is the period in which the scaling may happen.
type window struct{ start, end time.Time }

// sure returns true if kube-controller-manager puts p before q at all times in the window. The
// caller has sorted p before q. kube-controller-manager first compares how long the pods have been
// ready. If they became ready at the same time, it compares their restarts, and then their ages. If
// the two compared durations or ages differ, but round down to the same power of two,
// kube-controller-manager compares the UIDs instead.
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
	case since.Before(other):
		// While both ages round down to the same power of two, the UIDs decide. When the ages round down to
		// different powers of two, q comes first, because q has the lower age.
		return p.uid < q.uid && w.always(since, other, true)
	}
	return p.uid < q.uid || w.always(since, other, false)
}

// always(a, b, true) reports whether power(a, t) and power(b, t) are equal at all times t in the
// window. always(a, b, false) reports whether power(a, t) and power(b, t) are different at all
// times t in the window. The loop checks only the times at which the age t-a or t-b reaches a power
// of two, because power(a, t) and power(b, t) change only at these times.
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

// power returns the number of bits of an age in nanoseconds. Kubernetes' order does not distinguish
// ages with the same number of bits.
func power(since, now time.Time) int { return bits.Len64(uint64(max(0, now.Sub(since)))) }
