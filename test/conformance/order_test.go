// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	"k8s.io/kubernetes/pkg/controller"

	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A crowd is a list of pods. The tests compare each pod with each other pod.
type crowd struct {
	Pods []slowrank.Pod
	Now  metav1.Time
}

const crowdSize = 150

// newCrowd returns a crowd. In half of the crowds, most pods are equal in the first criteria, so that the later
// criteria decide.
func newCrowd(g *gen) crowd {
	now := start.Add(time.Duration(g.Int64N(int64(time.Second))))
	c := crowd{Pods: make([]slowrank.Pod, crowdSize), Now: metav1.NewTime(now)}
	alike := g.in(2)
	for i := range c.Pods {
		c.Pods[i] = slowrank.Pod{Pod: g.rankedPod(now), Rank: pick(g, 0, 0, 0, 1, 2)}
		if alike && !g.in(20) {
			p := c.Pods[i].Pod
			p.Spec.NodeName, p.Status.Phase, p.Annotations, c.Pods[i].Rank = "n1", corev1.PodRunning, nil, 0
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: g.instant(now)}}
		}
	}
	if g.in(8) {
		c.Now = metav1.Time{}
	}
	return c
}

func (c crowd) pods() []*corev1.Pod {
	pods := make([]*corev1.Pod, len(c.Pods))
	for i, r := range c.Pods {
		pods[i] = r.Pod
	}
	return pods
}

func (c crowd) ranks() []int {
	ranks := make([]int, len(c.Pods))
	for i, r := range c.Pods {
		ranks[i] = r.Rank
	}
	return ranks
}

// lesser is the method of sort.Interface that the tests compare.
type lesser interface{ Less(i, j int) bool }

// order returns -1 if pod i is deleted first, 1 if pod j is deleted first, and 0 if neither pod goes first.
func order(s lesser, i, j int) int {
	switch {
	case s.Less(i, j):
		return -1
	case s.Less(j, i):
		return 1
	}
	return 0
}

// The named differences between the two orders.
const (
	bucketTie  = "W28: ages of one power of two are a tie, and not decided by UID at once"
	lastResort = "R12: pods that are equal so far are told apart by UID, namespace and name"
	signedZero = "W38: a cost with zeros behind its sign is invalid, and so 0"
	wholeLog   = "R9: the power of two is that of the integer, not of its nearest float64"
	several    = "several of these at once"
)

// orders returns how Kubernetes' rules and ours order two pods.
func orders(p, q slowrank.Pod, now time.Time) (theirs, ours int) {
	_, theirs = slowrank.Kubernetes.Compare(p, q, now)
	_, ours = slowrank.Ours.Compare(p, q, now)
	return theirs, ours
}

// name returns the name of the intended difference that explains why the two sides order two pods differently. For
// each intended difference, name adds only this difference to Kubernetes' rules. If the changed rules order the two
// pods as our rules do, name returns the name of this difference. If no single difference leads to the order of our
// rules, the result is the value of the constant several.
func name(p, q slowrank.Pod, now time.Time) string {
	_, ours := orders(p, q, now)
	for _, difference := range []struct {
		name  string
		rules slowrank.Rules
	}{
		{bucketTie, slowrank.Rules{BucketTie: true}},
		{lastResort, slowrank.Rules{LastResort: true}},
		{signedZero, slowrank.Rules{SignedZero: true}},
		{wholeLog, slowrank.Rules{WholeLog: true}},
	} {
		if _, c := difference.rules.Compare(p, q, now); c == ours {
			return difference.name
		}
	}
	return several
}

func TestPairOrder(t *testing.T) {
	t.Parallel()
	t.Run("R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R14 R18 W28 W38 each pair of pods goes in Kubernetes' order but for the named differences", func(t *testing.T) {
		t.Parallel()
		comparison[crowd]{
			cases: 200, each: crowdSize * crowdSize, of: "pairs of pods",
			input: newCrowd,
			differ: func(c crowd, named *tally) string {
				theirs := controller.ActivePodsWithRanks{Pods: c.pods(), Rank: c.ranks(), Now: c.Now}
				ours := podrank.ActivePodsWithRanks{Pods: c.pods(), Rank: c.ranks(), Now: c.Now}
				return differOnPairs(c, theirs, ours, named)
			},
			names: []string{bucketTie, lastResort, signedZero, wholeLog, several},
		}.run(t)
	})
	t.Run("R16 each pair of pods goes in Kubernetes' order of six criteria", func(t *testing.T) {
		t.Parallel()
		comparison[crowd]{
			cases: 200, each: crowdSize * crowdSize, of: "pairs of pods",
			input: newCrowd,
			differ: func(c crowd, _ *tally) string {
				theirs, ours := controller.ActivePods(c.pods()), podrank.ActivePods(c.pods())
				for i := range c.Pods {
					for j := range c.Pods {
						if theirs.Less(i, j) != ours.Less(i, j) {
							return fmt.Sprintf("Kubernetes: %v, ours: %v, for pods %d and %d", theirs.Less(i, j), ours.Less(i, j), i, j)
						}
					}
				}
				return ""
			},
		}.run(t)
	})
	t.Run("R15 W5 a missing rank is 0, and not a panic as in Kubernetes", func(t *testing.T) {
		t.Parallel()
		const panics = "W5: Kubernetes panics"
		comparison[crowd]{
			cases: 20, each: crowdSize * crowdSize, of: "pairs of pods",
			input: newCrowd,
			differ: func(c crowd, named *tally) string {
				short := c.ranks()[:len(c.Pods)/2]
				c.Pods = slices.Clone(c.Pods)
				for i := len(short); i < len(c.Pods); i++ {
					c.Pods[i].Rank = 0
				}
				full := controller.ActivePodsWithRanks{Pods: c.pods(), Rank: c.ranks(), Now: c.Now}
				ours := podrank.ActivePodsWithRanks{Pods: c.pods(), Rank: short, Now: c.Now}
				theirs := controller.ActivePodsWithRanks{Pods: c.pods(), Rank: short, Now: c.Now}
				for i := range c.Pods {
					if panicked(func() { theirs.Less(i, len(c.Pods)-1) }) {
						named.add(panics)
					}
				}
				return differOnPairs(c, full, ours, newTally())
			},
			names: []string{panics},
		}.run(t)
	})
}

func panicked(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// differOnPairs compares both orders with the rules of package slowrank. Kubernetes' order must follow the rules
// in slowrank.Kubernetes, and our order must follow the rules in slowrank.Ours. The rules in slowrank.Ours contain
// all named differences, and the rules in slowrank.Kubernetes contain no named difference. If the two orders
// differ on a pair of pods, differOnPairs counts the name of the difference.
func differOnPairs(c crowd, theirs, ours lesser, named *tally) string {
	for i, p := range c.Pods {
		for j, q := range c.Pods {
			a, b := order(theirs, i, j), order(ours, i, j)
			want, wantOurs := orders(p, q, c.Now.Time)
			switch {
			case a != want:
				return fmt.Sprintf("the test's idea of Kubernetes is wrong: %d, not %d, for pods %d and %d", a, want, i, j)
			case b != wantOurs:
				return fmt.Sprintf("Kubernetes: %d, ours: %d, with all named differences: %d, for pods %d and %d", a, b, wantOurs, i, j)
			case a != b:
				named.add(name(p, q, c.Now.Time))
			}
		}
	}
	return ""
}

func TestDeletionCost(t *testing.T) {
	t.Parallel()
	t.Run("R5 W38 a cost is read as Kubernetes reads it but for zeros behind a sign", func(t *testing.T) {
		t.Parallel()
		comparison[map[string]string]{
			cases: 1_000_000, of: "annotations",
			input: func(g *gen) map[string]string {
				switch g.IntN(10) {
				case 0:
					return nil
				case 1:
					return map[string]string{corev1.PodDeletionCost: pick(g, costs...)}
				}
				value := ""
				for range g.IntN(12) {
					value += pick(g, "-", "0", "1", "2", "4", "7", "8", "0", "+", " ", ".", "e")
					if g.in(2) {
						value = strings.TrimLeft(value, "+ .e")
					}
				}
				return map[string]string{corev1.PodDeletionCost: value}
			},
			differ: func(annotations map[string]string, named *tally) string {
				theirs, theirErr := helper.GetDeletionCostFromPodAnnotations(annotations)
				ours, ourErr := podrank.ParseDeletionCost(annotations)
				value := annotations[corev1.PodDeletionCost]
				if strings.HasPrefix(value, "-0") && value != "-0" && theirErr == nil {
					named.add(signedZero)
					theirs, theirErr = 0, assert.AnError
				}
				if ours != theirs || (ourErr == nil) != (theirErr == nil) {
					return fmt.Sprintf("Kubernetes: %d, %v; ours: %d, %v", theirs, theirErr, ours, ourErr)
				}
				return ""
			},
			names: []string{signedZero},
		}.run(t)
	})
}

func TestColocationRanks(t *testing.T) {
	t.Parallel()
	t.Run("L5 L6 each pod has the rank that Kubernetes gives it", func(t *testing.T) {
		t.Parallel()
		type input struct{ Pods, Related []*corev1.Pod }
		comparison[input]{
			cases: 20_000, of: "lists of pods with related ones",
			input: func(g *gen) input {
				pod := func() *corev1.Pod {
					p := g.rankedPod(start)
					if g.in(6) {
						p.DeletionTimestamp = new(metav1.NewTime(start))
					}
					return p
				}
				c := input{Pods: some(g, 12, pod), Related: some(g, 12, pod)}
				if g.in(2) {
					c.Related = slices.Concat(c.Pods, c.Related)
				}
				return c
			},
			differ: func(c input, _ *tally) string {
				theirs, ours := upstream.PodsWithRanks(c.Pods, c.Related).Rank, podrank.ColocationRanks(c.Pods, c.Related)
				if fmt.Sprint(theirs) != fmt.Sprint(ours) {
					return fmt.Sprintf("Kubernetes: %v, ours: %v", theirs, ours)
				}
				return ""
			},
		}.run(t)
	})
}
