// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slowrank implements Kubernetes' deletion order of pods in the simplest way, with one step for each
// criterion. Tests compare package podrank, the simulation and Kubernetes itself with this package. Packages
// slowrank and podrank share no code.
package slowrank

import (
	"cmp"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Pod is a pod with its rank; see Ranked.
type Pod struct {
	*corev1.Pod
	Rank int
}

// Rules selects which differences from Kubernetes apply.
type Rules struct {
	BucketTie  bool // W28: ages that round down to the same power of two are equal, and the next criterion decides instead of the UIDs
	LastResort bool // R12: pods that are equal in all other criteria are ordered by UID, namespace and name
	SignedZero bool // W38: a deletion cost with a zero directly after its minus sign is invalid and counts as 0
	WholeLog   bool // R9: the power of two is calculated from the integer instead of the nearest float64
}

// The variable Kubernetes holds the rules of Kubernetes itself. The variable Ours holds the rules of package
// podrank.
var (
	Kubernetes = Rules{}
	Ours       = Rules{true, true, true, true}
)

// Compare returns a negative number if pod p is deleted before pod q, and a positive number if q is deleted
// before p. The returned criterion is the first one in which the two pods differ, or "none".
func (r Rules) Compare(p, q Pod, now time.Time) (criterion string, c int) {
	for _, step := range r.steps(now) {
		switch c := step.compare(p, q); c {
		case 0:
		case over:
			return step.criterion, 0
		default:
			return step.criterion, c
		}
	}
	return "none", 0
}

// over is a result of step.compare: the two pods are equal, and the remaining steps are skipped.
const over = math.MaxInt

type step struct {
	criterion string
	compare   func(p, q Pod) int
}

func (r Rules) steps(now time.Time) []step {
	steps := []step{
		{"unassigned", func(p, q Pod) int { return trueFirst(p.Spec.NodeName == "", q.Spec.NodeName == "") }},
		{"phase", func(p, q Pod) int { return cmp.Compare(phase(p), phase(q)) }},
		{"not-ready", func(p, q Pod) int { return trueFirst(readySince(p) == nil, readySince(q) == nil) }},
		{"deletion-cost", func(p, q Pod) int { return cmp.Compare(r.cost(p), r.cost(q)) }},
		{"colocation", func(p, q Pod) int { return cmp.Compare(q.Rank, p.Rank) }},
		{"ready-time", func(p, q Pod) int {
			if readySince(p) == nil || readySince(q) == nil {
				return 0
			}
			return r.times(p, q, *readySince(p), *readySince(q), now)
		}},
		{"restarts", func(p, q Pod) int { return cmp.Compare(slices.Max(restarts(q)), slices.Max(restarts(p))) }},
		{"sidecar-restarts", func(p, q Pod) int { return cmp.Compare(slices.Max(sidecarRestarts(q)), slices.Max(sidecarRestarts(p))) }},
		{"creation-time", func(p, q Pod) int { return r.times(p, q, p.CreationTimestamp.Time, q.CreationTimestamp.Time, now) }},
	}
	if !r.LastResort {
		return steps
	}
	return append(steps,
		step{"uid", func(p, q Pod) int { return cmp.Compare(p.UID, q.UID) }},
		step{"name", func(p, q Pod) int {
			return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
		}})
}

func trueFirst(p, q bool) int {
	number := map[bool]int{true: 0, false: 1}
	return cmp.Compare(number[p], number[q])
}

func phase(p Pod) int {
	return map[corev1.PodPhase]int{corev1.PodUnknown: 1, corev1.PodRunning: 2}[p.Status.Phase]
}

// readySince returns the time at which the pod became ready, or nil.
func readySince(p Pod) *time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
		return nil
	}
	return nil
}

func (r Rules) cost(p Pod) int32 {
	value := p.Annotations[corev1.PodDeletionCost]
	if !r.SignedZero && strings.HasPrefix(value, "-0") {
		// Kubernetes looks only at the first character for a leading zero, so -008 is -8, but 008 is invalid.
		value = "-" + cmp.Or(strings.TrimLeft(value[1:], "0"), "0")
	}
	return ParseCost(value)
}

// Decimal matches the form of a valid deletion cost.
var Decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// ParseCost returns the deletion cost in an annotation, or 0 if the annotation is invalid.
func ParseCost(value string) int32 {
	n, ok := new(big.Int).SetString(value, 10)
	if !ok || !Decimal.MatchString(value) || n.BitLen() > 31 && n.String() != "-2147483648" {
		return 0
	}
	return int32(n.Int64())
}

func restarts(p Pod) []int32 {
	counts := []int32{0}
	for _, c := range p.Status.ContainerStatuses {
		counts = append(counts, c.RestartCount)
	}
	return counts
}

func sidecarRestarts(p Pod) []int32 {
	counts := []int32{0}
	for _, status := range p.Status.InitContainerStatuses {
		for _, c := range p.Spec.InitContainers {
			if c.Name == status.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				counts = append(counts, status.RestartCount)
			}
		}
	}
	return counts
}

// times compares the time t of pod p with the time u of pod q.
func (r Rules) times(p, q Pod, t, u, now time.Time) int {
	switch {
	case t.Equal(u):
		return 0
	case t.IsZero() || u.IsZero():
		return trueFirst(t.IsZero(), u.IsZero())
	case now.IsZero():
		return u.Compare(t)
	}
	c := cmp.Compare(r.power(now.Sub(t)), r.power(now.Sub(u)))
	if c == 0 && !r.BucketTie {
		// Kubernetes ends here, so restarts and creation times do not count for ages of one power. If two of three such
		// pods are ready since the same moment, the order can be a circle.
		return cmp.Or(cmp.Compare(p.UID, q.UID), over)
	}
	return c
}

// power returns the base-2 logarithm of an age in nanoseconds, rounded down, or -1 for an age that is not positive.
func (r Rules) power(age time.Duration) (halvings int) {
	if age <= 0 {
		return -1
	}
	if !r.WholeLog {
		// As a float64, an age of more than 6.5 days that is a few nanoseconds below a power of two is that power.
		return int(math.Log2(float64(age)))
	}
	for ; age > 1; age /= 2 {
		halvings++
	}
	return halvings
}

// Ranked returns the pods with their ranks, without nil pods. The rank of a pod is the number of active related pods on
// the same node.
func Ranked(pods, related []*corev1.Pod) (ranked []Pod) {
	for _, p := range pods {
		if p == nil {
			continue
		}
		rank := 0
		for _, r := range related {
			if r != nil && r.Spec.NodeName == p.Spec.NodeName && r.DeletionTimestamp == nil &&
				r.Status.Phase != corev1.PodSucceeded && r.Status.Phase != corev1.PodFailed {
				rank++
			}
		}
		ranked = append(ranked, Pod{Pod: p, Rank: rank})
	}
	return ranked
}

// Sort returns the pods in the order of package podrank. Equal pods stay in the order of the list.
func Sort(pods []Pod, now time.Time) []Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(p, q Pod) int {
		_, c := Ours.Compare(p, q, now)
		return c
	})
}
