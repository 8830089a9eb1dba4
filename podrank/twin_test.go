// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/podrank"
)

// slowSelect sorts all pods and takes the first n. If a pod is listed twice, slowSelect takes it once.
func slowSelect(pods, related []*corev1.Pod, n int, now time.Time) (victims []podrank.Victim[*corev1.Pod]) {
	var distinct []slowrank.Pod
	for _, p := range slowrank.Sort(slowrank.Ranked(pods, related), now) {
		if !slices.ContainsFunc(distinct, func(q slowrank.Pod) bool { return samePod(p, q) }) {
			distinct = append(distinct, p)
		}
	}
	n = max(0, min(n, len(pods)))
	for i, p := range distinct[:min(n, len(distinct))] {
		victims = append(victims, podrank.Victim[*corev1.Pod]{Object: p.Pod, Criterion: podrank.All})
		if n < len(distinct) {
			victims[i].Criterion, _ = slowrank.Ours.Compare(p, distinct[n], now)
		}
	}
	return victims
}

func samePod(p, q slowrank.Pod) bool {
	if p.UID != "" || q.UID != "" {
		return p.UID == q.UID
	}
	return p.Pod == q.Pod
}

// A chooser returns a number from 0 to n-1. The methods of a chooser make pods from few possible values, so that
// many pods are equal in some criteria. A property test uses random numbers, and a fuzz test uses numbers from its
// bytes.
type chooser func(n int) int

func randomly(seed uint64) chooser { return rand.New(rand.NewPCG(seed, 0)).IntN }

func fromBytes(data []byte) chooser {
	return func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	}
}

func pick[T any](choose chooser, values ...T) T { return values[choose(len(values))] }

func (choose chooser) pods(n int) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = choose.pod(strconv.Itoa(i))
	}
	return pods
}

func (choose chooser) pod(name string) *corev1.Pod {
	usually := func(often, seldom podtest.Option) podtest.Option { return pick(choose, often, often, often, seldom) }
	same := func(*corev1.Pod) {}
	p := podtest.Pod(name,
		podtest.On("node-"+strconv.Itoa(choose(4))),
		usually(same, podtest.On("")),
		usually(same, podtest.Phase(pick(choose, corev1.PodPending, corev1.PodUnknown, corev1.PodFailed, ""))),
		usually(same, podtest.Cost(pick(choose, "", "-1", "1", "-008", "2147483648"))),
		podtest.ReadySince(choose.instant()),
		usually(same, conditions(pick(choose, corev1.ConditionFalse, corev1.ConditionTrue))),
		podtest.Created(choose.instant()),
		usually(same, podtest.Restarts(int32(choose(3)))),
		usually(same, sidecarRestarts(int32(choose(3)))),
		usually(same, strayRestarts(3)),
		usually(same, podtest.Deleting),
		usually(same, podtest.UID("")),
	)
	if p.UID == "" && choose(4) == 0 {
		p.Name = ""
	}
	return p
}

func (choose chooser) instant() time.Time {
	return pick(choose, never, ago(-time.Hour), ago(0), ago(1), ago(5*time.Hour), ago(6*time.Hour), ago(6*time.Hour), ago(8*time.Hour),
		ago(100*time.Hour), podtest.Now.AddDate(5000, 0, 0), podtest.Now.AddDate(-1500, 0, 0))
}

// withRepeats adds some of the pods again, and also different pods that have the UIDs of given pods. withRepeats may
// also add nil pods.
func (choose chooser) withRepeats(pods []*corev1.Pod) []*corev1.Pod {
	for range choose(4) {
		changed := choose.pod("changed")
		other := pick(choose, pods...)
		changed.Namespace, changed.Name, changed.UID = other.Namespace, other.Name, other.UID
		pods = append(pods, pick(choose, pods...), changed)
	}
	for range choose(3) {
		pods = slices.Insert(pods, choose(len(pods)), nil)
	}
	return pods
}

func shuffled(pods []*corev1.Pod, seed uint64) []*corev1.Pod {
	pods = slices.Clone(pods)
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	return pods
}

func requireSameVictims(t *testing.T, want, got []podrank.Victim[*corev1.Pod]) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Samef(t, want[i].Object, got[i].Object, "victim %d", i)
		require.Equalf(t, want[i].Criterion, got[i].Criterion, "victim %d: %s, not %s", i, got[i].Criterion, want[i].Criterion)
	}
}

func TestOrderIsTotal(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]time.Time{"R18 W28 in buckets": podtest.Now, "R18 W28 with a zero now": never} {
		t.Run(name+" the order is total and as the twin says", func(t *testing.T) {
			t.Parallel()
			choose := randomly(1)
			pods := choose.pods(80)
			ranks := make([]int, len(pods))
			for i, p := range pods {
				ranks[i] = choose(3)
				p.Name = strconv.Itoa(i) // no two pods are equal
			}
			s := podrank.ActivePodsWithRanks{Pods: pods, Rank: ranks, Now: metav1.NewTime(now)}
			for i, p := range pods {
				for j, q := range pods {
					_, c := slowrank.Ours.Compare(slowrank.Pod{Pod: p, Rank: ranks[i]}, slowrank.Pod{Pod: q, Rank: ranks[j]}, now)
					require.Equal(t, c < 0, s.Less(i, j), "the twin differs")
					require.Equal(t, i != j, s.Less(i, j) != s.Less(j, i), "just one of two pods goes first")
					for k := range pods {
						require.False(t, s.Less(i, j) && s.Less(j, k) && !s.Less(i, k), "not transitive")
					}
				}
			}
		})
	}
}

func TestSelectIsTheTwins(t *testing.T) {
	t.Parallel()
	for seed := range uint64(80) {
		choose := randomly(seed)
		pods := choose.withRepeats(choose.pods(1 + choose(120)))
		related := pick(choose, nil, pods, append(choose.pods(50), pods...), append(slices.Clone(pods), choose.pods(50)...))
		n, now := choose(len(pods)+2), pick(choose, never, podtest.Now)
		requireSameVictims(t, slowSelect(pods, related, n, now), podrank.Select(pods, n, podrank.PodOptions{Now: now, Related: related}))
	}
}

func TestSelectFromManyIsTheTwins(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		pods := podtest.Fleet(1000, 50, seed)
		for _, n := range []int{1, 500, 995} {
			requireSameVictims(t, slowSelect(pods, pods, n, podtest.Now), podrank.Select(pods, n, podrank.PodOptions{Now: podtest.Now, Related: pods}))
		}
	}
}

func TestSelectWhateverTheOrder(t *testing.T) {
	t.Parallel()
	t.Run("D5 W28 the victims do not depend on the order of the lists", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(50) {
			choose := randomly(seed)
			pods := choose.pods(100)
			for i, p := range pods {
				p.Name = strconv.Itoa(i)
			}
			want := podrank.Select(pods, 30, podrank.PodOptions{Now: podtest.Now, Related: pods})
			for again := range uint64(5) {
				got := podrank.Select(shuffled(pods, again), 30, podrank.PodOptions{Now: podtest.Now, Related: shuffled(pods, again+9)})
				require.Equal(t, want, got)
			}
		}
	})
	t.Run("W29 orders that are sorted already, either way, are no worse", func(t *testing.T) {
		t.Parallel()
		pods := podtest.Fleet(2000, 100, 1)
		var sorted []*corev1.Pod
		for _, v := range podrank.Select(pods, len(pods), podrank.PodOptions{Now: podtest.Now, Related: pods}) {
			sorted = append(sorted, v.Object)
		}
		want := podrank.Select(pods, 200, podrank.PodOptions{Now: podtest.Now, Related: pods})
		assert.Equal(t, want, podrank.Select(sorted, 200, podrank.PodOptions{Now: podtest.Now, Related: pods}))
		slices.Reverse(sorted)
		assert.Equal(t, want, podrank.Select(sorted, 200, podrank.PodOptions{Now: podtest.Now, Related: pods}))
	})
}

func TestSelectIsThePrefixOfTheSort(t *testing.T) {
	t.Parallel()
	t.Run("D2 W29 the first n of the whole sort", func(t *testing.T) {
		t.Parallel()
		pods := podtest.Fleet(1000, 50, 1)
		sorted := slices.Clone(pods)
		sort.Sort(podrank.ActivePodsWithRanks{
			Pods: sorted, Rank: podrank.ColocationRanks(pods, pods), Now: metav1.NewTime(podtest.Now),
		})
		for n := 0; n <= len(pods); n += 37 {
			for i, v := range podrank.Select(pods, n, podrank.PodOptions{Now: podtest.Now, Related: pods}) {
				require.Same(t, sorted[i], v.Object)
			}
		}
	})
}

func FuzzSelect(f *testing.F) {
	f.Add([]byte(nil), 1, true)
	f.Add([]byte("podrank"), 3, false)
	f.Add([]byte{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 255, 254, 253, 252, 251, 250, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233}, 20, true)
	// The fuzzer found these inputs.
	f.Add([]byte("O"), 6, true)
	f.Add([]byte("X"), 78, true)
	f.Add([]byte("0"), -75, false)
	f.Add([]byte("\xcb"), 102, true)
	f.Add([]byte("0000097"), 48, false)
	f.Add([]byte("00000070"), 62, false)
	f.Add([]byte("\x00000000007"), 46, true)
	f.Add([]byte("00700170000000000007"), 20, true)
	f.Add([]byte("000001700000000000000017"), 20, true)
	f.Add([]byte("&000000000000000000000000"), 163, true)
	f.Add([]byte("\b00000000700000000000000007"), 6, false)
	f.Add([]byte("000000000000000000000007000000000000000070"), 0, true)
	f.Fuzz(func(t *testing.T, data []byte, n int, plain bool) {
		choose := fromBytes(data)
		pods := choose.withRepeats(choose.pods(1 + choose(100)))
		related := pick(choose, nil, pods, choose.pods(5))
		now := podtest.Now
		if plain {
			now = never
		}
		requireSameVictims(t, slowSelect(pods, related, n, now), podrank.Select(pods, n, podrank.PodOptions{Now: now, Related: related}))
	})
}
