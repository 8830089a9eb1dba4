// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/podrank"
)

// namesOf returns the names of the victims in the order of deletion.
func namesOf(victims []podrank.Victim[*corev1.Pod]) (names []string) {
	for _, v := range victims {
		names = append(names, v.Object.Name)
	}
	return names
}

func copies(pods []*corev1.Pod) (copies []*corev1.Pod) {
	for _, p := range pods {
		copies = append(copies, p.DeepCopy())
	}
	return copies
}

func TestColocationRanks(t *testing.T) {
	t.Parallel()
	on := func(node string, options ...podtest.Option) *corev1.Pod {
		return podtest.Pod("web", append(options, podtest.On(node))...)
	}
	for _, tt := range []struct {
		name          string
		pods, related []*corev1.Pod
		want          []int
	}{
		{name: "L5 no pods have no ranks", related: []*corev1.Pod{on("a")}},
		{name: "L5 no related pods, all ranks are 0", pods: []*corev1.Pod{on("a"), on("b")}, want: []int{0, 0}},
		{
			name: "L5 related pods are counted by node", pods: []*corev1.Pod{on("a"), on("b"), on("c")},
			related: []*corev1.Pod{on("a"), on("b"), on("a"), on("d")}, want: []int{2, 1, 0},
		},
		{
			name: "L5 finished pods and those being deleted do not count", pods: []*corev1.Pod{on("a")},
			related: []*corev1.Pod{on("a", podtest.Phase(corev1.PodSucceeded)), on("a", podtest.Phase(corev1.PodFailed)), on("a", podtest.Deleting), on("a")},
			want:    []int{1},
		},
		{
			name: "L5 W31 active pods count, ready or not", pods: []*corev1.Pod{on("a")},
			related: []*corev1.Pod{on("a"), on("a", podtest.NotReady), on("a", podtest.Phase(corev1.PodPending))}, want: []int{3},
		},
		{
			name: "L6 unassigned pods share a node", pods: []*corev1.Pod{on(""), on("a")},
			related: []*corev1.Pod{on(""), on(""), on("a")}, want: []int{2, 1},
		},
		{name: "a nil pod has rank 0, a nil related pod does not count", pods: []*corev1.Pod{nil, on("")}, related: []*corev1.Pod{nil, on(""), nil, on("z")}, want: []int{0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, podrank.ColocationRanks(tt.pods, tt.related))
		})
	}
	t.Run("L5 a pod counts itself when it is related", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{on("a"), on("a"), on("b", podtest.Deleting), on("b")}
		assert.Equal(t, []int{2, 2, 1, 1}, podrank.ColocationRanks(pods, pods))
	})
	t.Run("L5 counting is as the twin's", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(100) {
			choose := randomly(seed)
			pods := choose.withRepeats(choose.pods(30))
			for _, related := range [][]*corev1.Pod{nil, pods, pods[:10], shuffled(pods, seed), append(choose.pods(30), pods...), append(slices.Clone(pods), choose.pods(30)...)} {
				slow := slowrank.Ranked(pods, related)
				for i, rank := range podrank.ColocationRanks(pods, related) {
					want := 0
					if pods[i] != nil {
						want, slow = slow[0].Rank, slow[1:]
					}
					require.Equal(t, want, rank)
				}
			}
		}
	})
}

func TestSelect(t *testing.T) {
	t.Parallel()
	pod := podtest.Pod
	t.Run("D2 the first n in their order", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{pod("running"), pod("not-ready", podtest.NotReady), pod("cheap", podtest.Cost("-1")), pod("unassigned", podtest.On(""))}
		assert.Equal(t, []string{"unassigned", "not-ready", "cheap"}, namesOf(podrank.Select(pods, 3, podrank.PodOptions{Now: podtest.Now})))
		assert.Equal(t, []string{"unassigned"}, namesOf(podrank.Select(pods, 1, podrank.PodOptions{Now: podtest.Now})))
	})
	t.Run("D1 all pods go in their order too", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{pod("b"), pod("a"), pod("c", podtest.NotReady)}
		for _, n := range []int{3, 4, 1e9, math.MaxInt} {
			victims := podrank.Select(pods, n, podrank.PodOptions{Now: podtest.Now})
			assert.Equal(t, []string{"c", "a", "b"}, namesOf(victims), "n is clamped")
			for _, v := range victims {
				assert.Equal(t, podrank.All, v.Criterion)
				assert.Zero(t, v.Values)
			}
		}
	})
	t.Run("D3 nothing is nil", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{pod("a")}
		for _, n := range []int{0, -1, math.MinInt} {
			assert.Nil(t, podrank.Select(pods, n, podrank.PodOptions{Now: podtest.Now, Related: pods}))
		}
		assert.Nil(t, podrank.Select(nil, 5, podrank.PodOptions{Now: podtest.Now, Related: pods}))
		assert.Nil(t, podrank.Select([]*corev1.Pod{}, 5, podrank.PodOptions{Now: podtest.Now}))
		assert.Nil(t, podrank.Select([]*corev1.Pod{nil, nil}, 2, podrank.PodOptions{Now: podtest.Now}))
	})
	t.Run("R6 L5 the fuller node gives first", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{pod("a"), pod("b", podtest.On("node-2")), pod("c", podtest.On("node-2"))}
		assert.Equal(t, []string{"b", "c"}, namesOf(podrank.Select(pods, 2, podrank.PodOptions{Now: podtest.Now, Related: pods})))
		assert.Equal(t, []string{"a", "b"}, namesOf(podrank.Select(pods, 2, podrank.PodOptions{Now: podtest.Now})), "no related pods, no ranks")
		assert.Equal(t, []string{"a", "b"}, namesOf(podrank.Select(pods, 2, podrank.PodOptions{Now: podtest.Now, Related: []*corev1.Pod{}})), "empty is the same as nil")
	})
	t.Run("D5 pods of one bucket come in the order of their UIDs", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{pod("a", podtest.UID("3")), pod("b", podtest.UID("1")), pod("c", podtest.UID("2"))}
		assert.Equal(t, []string{"b", "c"}, namesOf(podrank.Select(pods, 2, podrank.PodOptions{Now: podtest.Now, Related: pods})))
	})
	t.Run("D4 W36 neither list is changed, nor a pod", func(t *testing.T) {
		t.Parallel()
		pods, related := slices.Insert(podtest.Fleet(300, 10, 1), 100, nil), podtest.Fleet(300, 10, 2)
		podsBefore, relatedBefore := slices.Clone(pods), slices.Clone(related)
		podCopies, relatedCopies := copies(pods), copies(related)
		victims := podrank.Select(pods, 100, podrank.PodOptions{Now: podtest.Now, Related: related})
		assert.True(t, slices.Equal(podsBefore, pods), "the same pods in the same order")
		assert.True(t, slices.Equal(relatedBefore, related))
		assert.Equal(t, podCopies, pods)
		assert.Equal(t, relatedCopies, related)
		for _, v := range victims {
			assert.True(t, slices.Contains(pods, v.Object), "victims are the caller's pods, not copies")
		}
	})
	t.Run("a nil pod neither goes nor survives", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{nil, pod("b"), nil, pod("a")}
		assert.Equal(t, []string{"a"}, namesOf(podrank.Select(pods, 1, podrank.PodOptions{Now: podtest.Now})))
		victims := podrank.Select(pods, 2, podrank.PodOptions{Now: podtest.Now})
		assert.Equal(t, []string{"a", "b"}, namesOf(victims))
		assert.Equal(t, podrank.All, victims[0].Criterion)
	})
}

//nolint:paralleltest // AllocsPerRun counts the allocations of other tests too
func TestSelectAllocatesLittle(t *testing.T) {
	t.Run("W30 no allocation a pod: 500 of 5,000 pods on 500 nodes", func(t *testing.T) {
		pods := podtest.Fleet(5000, 500, 1)
		opts := podrank.PodOptions{Now: podtest.Now, Related: pods}
		assert.LessOrEqual(t, testing.AllocsPerRun(5, func() { podrank.Select(pods, 500, opts) }), 30.0)
	})
	t.Run("W30 nor a node: 500 of 5,000 pods on nearly as many nodes", func(t *testing.T) {
		var pods []*corev1.Pod
		for i := range 5000 {
			pods = append(pods, podtest.Pod(strconv.Itoa(i), podtest.On("node-"+strconv.Itoa(i*10/11))))
		}
		opts := podrank.PodOptions{Now: podtest.Now, Related: pods}
		assert.LessOrEqual(t, testing.AllocsPerRun(5, func() { podrank.Select(pods, 500, opts) }), 30.0)
	})
	t.Run("nor a victim, if UIDs decide", func(t *testing.T) {
		var pods []*corev1.Pod
		for i := range 5000 {
			pods = append(pods, podtest.Pod(strconv.Itoa(i)))
		}
		assert.LessOrEqual(t, testing.AllocsPerRun(5, func() { podrank.Select(pods, 500, podrank.PodOptions{Now: podtest.Now}) }), 30.0)
	})
}

func TestSelectWithPodsListedTwice(t *testing.T) {
	t.Parallel()
	a, b, c := podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c")
	t.Run("a pod listed twice goes once", func(t *testing.T) {
		t.Parallel()
		victims := podrank.Select([]*corev1.Pod{a, b, a, c, a}, 2, podrank.PodOptions{Now: podtest.Now})
		assert.Equal(t, []string{"a", "b"}, namesOf(victims))
		assert.Equal(t, "uid-c", victims[0].Values.Survivor, "a victim does not survive")
	})
	t.Run("none survives a number that the distinct pods do not reach", func(t *testing.T) {
		t.Parallel()
		victims := podrank.Select([]*corev1.Pod{a, b, a, b}, 3, podrank.PodOptions{Now: podtest.Now})
		assert.Equal(t, []string{"a", "b"}, namesOf(victims))
		assert.Equal(t, podrank.All, victims[0].Criterion)
	})
	t.Run("none survives a number that they just reach", func(t *testing.T) {
		t.Parallel()
		victims := podrank.Select([]*corev1.Pod{a, b, a, b}, 2, podrank.PodOptions{Now: podtest.Now})
		assert.Equal(t, []string{"a", "b"}, namesOf(victims))
		assert.Equal(t, podrank.All, victims[0].Criterion)
	})
	t.Run("of copies of one UID the one that goes first counts", func(t *testing.T) {
		t.Parallel()
		stale := podtest.Pod("c", podtest.NotReady)
		for _, pods := range [][]*corev1.Pod{{a, b, c, stale}, {stale, c, b, a}} {
			victims := podrank.Select(pods, 2, podrank.PodOptions{Now: podtest.Now})
			assert.Equal(t, []string{"c", "a"}, namesOf(victims))
			assert.Same(t, stale, victims[0].Object)
			assert.Equal(t, "uid-b", victims[1].Values.Survivor)
		}
	})
	t.Run("without UIDs, pods of one namespace and name are two", func(t *testing.T) {
		t.Parallel()
		one := func(namespace, name string, options ...podtest.Option) *corev1.Pod {
			return podtest.Pod("web", append(with(podtest.UID(""), named(namespace, name)), options...)...)
		}
		pods := []*corev1.Pod{one("x", "a"), one("x", "a", podtest.NotReady), one("y", "a"), one("x", "b")}
		assert.Equal(t, []string{"a", "a", "b", "a"}, namesOf(podrank.Select(pods, 4, podrank.PodOptions{Now: podtest.Now})))
		assert.Equal(t, []string{"a", "b"}, namesOf(podrank.Select([]*corev1.Pod{pods[0], pods[3], pods[0]}, 3, podrank.PodOptions{Now: podtest.Now})))
	})
	t.Run("without UIDs and names, each is a pod, and the list decides", func(t *testing.T) {
		t.Parallel()
		p, q, r := &corev1.Pod{}, &corev1.Pod{}, &corev1.Pod{}
		victims := podrank.Select([]*corev1.Pod{p, q, p, r}, 2, podrank.PodOptions{Now: podtest.Now})
		require.Len(t, victims, 2)
		assert.Same(t, p, victims[0].Object)
		assert.Same(t, q, victims[1].Object)
		assert.Equal(t, podrank.None, victims[0].Criterion)
		assert.Equal(t, "none", victims[0].Explain())
	})
	t.Run("a pod listed often is found once among many", func(t *testing.T) {
		t.Parallel()
		pods := podtest.Fleet(500, 50, 1)
		want := podrank.Select(pods, 100, podrank.PodOptions{Now: podtest.Now})
		for range 20 {
			pods = append(pods, want[0].Object, want[50].Object, want[99].Object)
		}
		assert.Equal(t, want, podrank.Select(shuffled(pods, 1), 100, podrank.PodOptions{Now: podtest.Now}))
	})
}

func TestVictimValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		first, second    []podtest.Option
		related          []*corev1.Pod
		plain            bool
		victim, survivor string
		explained        string
	}{
		{name: "unassigned", first: with(podtest.On("")), victim: "unassigned", survivor: "assigned", explained: "unassigned"},
		{name: "phase", first: with(podtest.Phase("Pending")), victim: "Pending", survivor: "Running", explained: "phase Pending < Running"},
		{name: "no phase", first: with(podtest.Phase("")), victim: "none", survivor: "Running", explained: "phase none < Running"},
		{name: "not ready", first: with(podtest.NotReady), victim: "not ready", survivor: "ready", explained: "not ready"},
		{name: "deletion cost", first: with(podtest.Cost("-100")), victim: "-100", survivor: "0", explained: "deletion cost -100 < 0"},
		{
			name: "colocation", first: with(podtest.On("node-4")), related: []*corev1.Pod{podtest.Pod("a", podtest.On("node-4")), podtest.Pod("b", podtest.On("node-4")), podtest.Pod("c")},
			victim: "2", survivor: "1", explained: "2 replicas on node-4",
		},
		{
			name: "one is singular", first: with(podtest.On("node-4")), related: []*corev1.Pod{podtest.Pod("a", podtest.On("node-4"))},
			victim: "1", survivor: "0", explained: "1 replica on node-4",
		},
		{name: "ready time", first: with(readyFor(5 * time.Minute)), second: with(readyFor(2 * time.Hour)), victim: "5m", survivor: "2h", explained: "ready for 5m < 2h"},
		{name: "every unit", first: with(readyFor(59*time.Second + 1)), second: with(readyFor(time.Hour + 30*time.Second)), victim: "59s", survivor: "1h0m30s", explained: "ready for 59s < 1h0m30s"},
		{name: "minutes that end in 0", first: with(readyFor(10 * time.Minute)), second: with(readyFor(100*time.Hour + 10*time.Minute)), victim: "10m", survivor: "100h10m", explained: "ready for 10m < 100h10m"},
		{name: "ready now", first: with(readyFor(0)), second: with(readyFor(time.Second)), victim: "0s", survivor: "1s", explained: "ready for 0s < 1s"},
		{name: "ready in the future", first: with(readyFor(-5 * time.Minute)), victim: "-5m", survivor: "1h", explained: "ready for -5m < 1h"},
		{name: "ready since a time unknown", first: with(podtest.ReadySince(never)), victim: "unknown", survivor: "1h", explained: "ready time unknown"},
		{
			name: "ready times, zero now", first: with(readyFor(0)), plain: true, victim: "2026-05-04T12:00:00Z", survivor: "2026-05-04T11:00:00Z",
			explained: "ready time 2026-05-04T12:00:00Z > 2026-05-04T11:00:00Z",
		},
		{
			name: "ready times in another zone", first: with(podtest.ReadySince(podtest.Now.Add(1).In(time.FixedZone("", 3600)))), plain: true,
			victim: "2026-05-04T12:00:00.000000001Z", survivor: "2026-05-04T11:00:00Z", explained: "ready time 2026-05-04T12:00:00.000000001Z > 2026-05-04T11:00:00Z",
		},
		{name: "restarts", first: with(podtest.Restarts(4)), victim: "4", survivor: "0", explained: "4 restarts > 0"},
		{name: "one restart", first: with(podtest.Restarts(1)), victim: "1", survivor: "0", explained: "1 restart > 0"},
		{name: "sidecar restarts", first: with(sidecarRestarts(4)), second: with(sidecarRestarts(1)), victim: "4", survivor: "1", explained: "4 sidecar restarts > 1"},
		{name: "creation time", first: with(createdFor(5 * time.Minute)), victim: "5m", survivor: "1h", explained: "age 5m < 1h"},
		{name: "created at a time unknown", first: with(podtest.Created(never)), victim: "unknown", survivor: "1h", explained: "creation time unknown"},
		{
			name: "creation times, zero now", first: with(createdFor(0)), plain: true, victim: "2026-05-04T12:00:00Z", survivor: "2026-05-04T11:00:00Z",
			explained: "creation time 2026-05-04T12:00:00Z > 2026-05-04T11:00:00Z",
		},
		{name: "UID", first: with(podtest.UID("a")), second: with(podtest.UID("b")), victim: "a", survivor: "b", explained: "UID a < b"},
		{name: "name", first: with(podtest.UID(""), named("x", "a")), second: with(podtest.UID(""), named("x", "b")), victim: "x/a", survivor: "x/b", explained: "name x/a < x/b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			now := podtest.Now
			if tt.plain {
				now = never
			}
			pods := []*corev1.Pod{podtest.Pod("second", tt.second...), podtest.Pod("first", tt.first...)}
			victims := podrank.Select(pods, 1, podrank.PodOptions{Now: now, Related: tt.related})
			require.Len(t, victims, 1)
			assert.Same(t, pods[1], victims[0].Object)
			assert.Equal(t, tt.victim, victims[0].Values.Victim)
			assert.Equal(t, tt.survivor, victims[0].Values.Survivor)
			assert.Equal(t, tt.explained, victims[0].Explain())
		})
	}
	t.Run("each of many victims has its own values", func(t *testing.T) {
		t.Parallel()
		var pods []*corev1.Pod
		for i := range 1000 {
			pods = append(pods, podtest.Pod(strconv.Itoa(i), podtest.Cost(strconv.Itoa(i-700))))
		}
		for i, v := range podrank.Select(pods, 900, podrank.PodOptions{Now: podtest.Now}) {
			assert.Equal(t, fmt.Sprintf("deletion cost %d < 200", i-700), v.Explain())
		}
	})
}

func TestExplainOfNoDecision(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "none", podrank.Victim[*corev1.Pod]{}.Explain())
	assert.Equal(t, "priority", podrank.Victim[*corev1.Pod]{Criterion: "priority"}.Explain())
}
