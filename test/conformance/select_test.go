// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A selection is a list of pods, from which each side chooses N pods for deletion.
type selection struct {
	Pods, Related []*corev1.Pod
	N             int
}

// undisputed returns pods that both sides put in the same order. In Kubernetes' order, no two of these pods are
// equal. Each pod was created at least one millisecond before or after start, because Kubernetes' metric divides
// by the age of the youngest ready pod in milliseconds (W1).
func (g *gen) undisputed() selection {
	var c selection
	size := 1 + g.IntN(40)
	related := some(g, 15, func() *corev1.Pod { return g.rankedPod(start) })
	if g.in(4) {
		related = nil
	}
	ranks := map[string]int{}
	for range size {
		p := g.rankedPod(start)
		age := start.Sub(p.CreationTimestamp.Time)
		if -time.Millisecond < age && age < time.Millisecond {
			p.CreationTimestamp = metav1.NewTime(start.Add(-time.Hour))
		}
		p.UID = types.UID(strconv.Itoa(len(c.Pods)))
		c.Pods = append(c.Pods, p)
	}
	c.Related = slices.Concat(related, c.Pods)
	for i, rank := range upstream.PodsWithRanks(c.Pods, c.Related).Rank {
		ranks[string(c.Pods[i].UID)] = rank
	}
	// The loop compares each pod with all pods that are already kept. If the two sides disagree on the order of the
	// pod and a kept pod, the loop does not keep the pod. If the pod and a kept pod are equal in Kubernetes' order,
	// the loop does not keep the pod either. A pod that is not kept still counts for the ranks of the kept pods.
	var kept []*corev1.Pod
	for _, p := range c.Pods {
		disputed := func(q *corev1.Pod) bool {
			a, b := slowrank.Pod{Pod: p, Rank: ranks[string(p.UID)]}, slowrank.Pod{Pod: q, Rank: ranks[string(q.UID)]}
			theirs, ours := orders(a, b, start)
			return theirs == 0 || theirs != ours
		}
		if !slices.ContainsFunc(kept, disputed) {
			kept = append(kept, p)
		}
	}
	c.Pods = kept
	c.N = g.IntN(len(kept) + 1)
	return c
}

func uids(pods []*corev1.Pod) []types.UID {
	list := make([]types.UID, len(pods))
	for i, p := range pods {
		list[i] = p.UID
	}
	return list
}

func victims(pods, related []*corev1.Pod, n int) []*corev1.Pod {
	var chosen []*corev1.Pod
	for _, v := range podrank.Select(pods, n, podrank.PodOptions{Now: time.Now(), Related: related}) {
		chosen = append(chosen, v.Object)
	}
	return chosen
}

func TestSelection(t *testing.T) {
	t.Parallel()
	t.Run("D1 D2 D3 L5 L7 where no two pods are disputed the same ones go first", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[selection]{
			cases: 20_000, of: "selections from up to 40 pods",
			input: (*gen).undisputed,
			differ: func(c selection, _ *tally) string {
				theirs := uids(upstream.GetPodsToDelete(slices.Clone(c.Pods), c.Related, c.N))
				ours := uids(victims(c.Pods, c.Related, c.N))
				if c.N == len(c.Pods) { // if all pods are chosen, Kubernetes does not sort them
					slices.Sort(theirs)
					slices.Sort(ours)
				}
				if !slices.Equal(theirs, ours) {
					return fmt.Sprintf("of %d pods %d go: Kubernetes: %v, ours: %v", len(c.Pods), c.N, theirs, ours)
				}
				return ""
			},
		})
	})
	for _, share := range []int{10, 50, 100} {
		t.Run(fmt.Sprintf("R8 R18 W28 in fleets with %d %% of the pods restarted few other pods go", share), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { measureFleets(t, share) })
		})
	}
}

// inBubble runs a comparison in a synctest bubble. Time in the bubble begins at start and passes only during
// sleeps, so both sides have the same current time.
func inBubble[C any](t *testing.T, x comparison[C]) {
	t.Helper()
	synctest.Test(t, x.run)
}

const (
	fleets    = 100
	fleetSize = 500
	fleetGone = fleetSize / 10
)

// measureFleets measures how many of the pods that Kubernetes chooses are not chosen by our side, in realistic
// fleets. It also counts the fleets in which Kubernetes chooses other pods if the list has another order.
func measureFleets(t *testing.T, restarted int) {
	t.Helper()
	others, torn := 0, 0
	for i := range few(fleets) {
		g := newGen(t.Name(), i)
		pods := g.fleet(restarted)
		theirs := upstream.GetPodsToDelete(slices.Clone(pods), pods, fleetGone)
		ours := victims(pods, pods, fleetGone)
		others += missing(theirs, ours)
		g.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		if missing(theirs, upstream.GetPodsToDelete(slices.Clone(pods), pods, fleetGone)) > 0 {
			torn++
		}
		require.Zero(t, missing(ours, victims(pods, pods, fleetGone)), "ours does not depend on the order of the list")
	}
	chosen := few(fleets) * fleetGone
	percent := 100 * float64(others) / float64(chosen)
	t.Logf("%d %% restarted: of %s pods chosen from %s fleets %.1f %% differ; in %d fleets Kubernetes' choice depends on the order of the list",
		restarted, thousands(chosen), thousands(few(fleets)), percent, torn)
	require.Less(t, percent, 10.0, "the two choose much the same pods")
}

// missing returns how many of the pods are not among the others.
func missing(pods, others []*corev1.Pod) (n int) {
	for _, p := range pods {
		if !slices.Contains(others, p) {
			n++
		}
	}
	return n
}

// fleet returns the pods of a Deployment that was scaled up in bursts. All pods are running, on fifty nodes. The
// pods of a burst were created within seconds of each other, and became ready within seconds of each other. The
// given percentage of the pods has restarted up to five times. Half of the restarted pods became ready again
// later.
func (g *gen) fleet(restarted int) []*corev1.Pod {
	var bursts [12]time.Time
	for i := range bursts {
		bursts[i] = start.Add(-time.Duration(60+g.IntN(14*24*3600)) * time.Second)
	}
	pods := make([]*corev1.Pod, fleetSize)
	for i := range pods {
		created := bursts[g.IntN(len(bursts))].Add(time.Duration(g.IntN(3)) * time.Second)
		ready, n := created.Add(time.Duration(2+g.IntN(5))*time.Second), int32(0)
		if g.IntN(100) < restarted {
			n = int32(1 + g.IntN(5))
			if g.in(2) {
				ready = start.Add(-time.Duration(g.Int64N(int64(start.Sub(ready))))).Truncate(time.Second)
			}
		}
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprintf("web-%03d", i),
				UID:               types.UID(fmt.Sprintf("%016x-%d", g.Uint64(), i)),
				CreationTimestamp: metav1.NewTime(created),
			},
			Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%02d", g.IntN(50))},
			Status: corev1.PodStatus{
				Phase:             corev1.PodRunning,
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ready)}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "web", RestartCount: n}},
			},
		}
	}
	return pods
}
