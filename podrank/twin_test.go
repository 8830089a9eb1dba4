package podrank_test

import (
	"cmp"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/podrank"
)

// The slow twin of the package: the order straight from its description, one
// step a criterion, and the choice as a full sort.

type slowPod struct {
	*corev1.Pod
	rank int
}

type slowStep struct {
	by      string
	compare func(p, q slowPod) int
}

func slowSteps(now time.Time) []slowStep {
	return []slowStep{
		{"unassigned", func(p, q slowPod) int { return trueFirst(p.Spec.NodeName == "", q.Spec.NodeName == "") }},
		{"phase", func(p, q slowPod) int { return cmp.Compare(slowPhase(p), slowPhase(q)) }},
		{"not-ready", func(p, q slowPod) int { return trueFirst(slowReady(p) == nil, slowReady(q) == nil) }},
		{"deletion-cost", func(p, q slowPod) int { return cmp.Compare(slowCost(p), slowCost(q)) }},
		{"colocation", func(p, q slowPod) int { return cmp.Compare(q.rank, p.rank) }},
		{"ready-time", func(p, q slowPod) int {
			if slowReady(p) == nil || slowReady(q) == nil {
				return 0
			}
			return slowTimes(*slowReady(p), *slowReady(q), now)
		}},
		{"restarts", func(p, q slowPod) int {
			return cmp.Compare(slices.Max(slowRestarts(q, false)), slices.Max(slowRestarts(p, false)))
		}},
		{"sidecar-restarts", func(p, q slowPod) int {
			return cmp.Compare(slices.Max(slowRestarts(q, true)), slices.Max(slowRestarts(p, true)))
		}},
		{"creation-time", func(p, q slowPod) int {
			return slowTimes(p.CreationTimestamp.Time, q.CreationTimestamp.Time, now)
		}},
		{podrank.UID, func(p, q slowPod) int { return cmp.Compare(p.UID, q.UID) }},
		{podrank.Name, func(p, q slowPod) int {
			return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
		}},
	}
}

func slowCompare(p, q slowPod, now time.Time) (string, int) {
	for _, step := range slowSteps(now) {
		if c := step.compare(p, q); c != 0 {
			return step.by, c
		}
	}
	return podrank.None, 0
}

func trueFirst(p, q bool) int {
	number := map[bool]int{true: 0, false: 1}
	return cmp.Compare(number[p], number[q])
}

func slowPhase(p slowPod) int {
	return map[corev1.PodPhase]int{corev1.PodUnknown: 1, corev1.PodRunning: 2}[p.Status.Phase]
}

// slowReady returns since when the pod is ready, nil if it is not.
func slowReady(p slowPod) *time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			if c.Status == corev1.ConditionTrue {
				return &c.LastTransitionTime.Time
			}
			return nil
		}
	}
	return nil
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

func slowCost(p slowPod) int32 { return slowParse(p.Annotations[corev1.PodDeletionCost]) }

func slowParse(value string) int32 {
	n, ok := new(big.Int).SetString(value, 10)
	if !ok || !decimal.MatchString(value) || n.BitLen() > 31 && n.String() != "-2147483648" {
		return 0
	}
	return int32(n.Int64())
}

func slowRestarts(p slowPod, sidecars bool) []int32 {
	counts := []int32{0}
	if !sidecars {
		for _, c := range p.Status.ContainerStatuses {
			counts = append(counts, c.RestartCount)
		}
		return counts
	}
	for _, status := range p.Status.InitContainerStatuses {
		for _, c := range p.Spec.InitContainers {
			if c.Name == status.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				counts = append(counts, status.RestartCount)
			}
		}
	}
	return counts
}

func slowTimes(p, q, now time.Time) int {
	if p.IsZero() || q.IsZero() {
		return trueFirst(p.IsZero(), q.IsZero())
	}
	if now.IsZero() {
		return q.Compare(p)
	}
	return cmp.Compare(slowBucket(now.Sub(p)), slowBucket(now.Sub(q)))
}

// slowBucket counts how often an age can be halved.
func slowBucket(age time.Duration) (halvings int) {
	if age <= 0 {
		return -1
	}
	for ; age > 1; age /= 2 {
		halvings++
	}
	return halvings
}

func slowRanks(pods, related []*corev1.Pod) []int {
	ranks := make([]int, len(pods))
	for i, p := range pods {
		for _, r := range related {
			if p != nil && r != nil && r.Spec.NodeName == p.Spec.NodeName && r.DeletionTimestamp == nil &&
				r.Status.Phase != corev1.PodSucceeded && r.Status.Phase != corev1.PodFailed {
				ranks[i]++
			}
		}
	}
	return ranks
}

// slowSelect sorts all pods and takes the first n, a pod listed twice once.
func slowSelect(pods, related []*corev1.Pod, n int, now time.Time) (victims []podrank.Victim[*corev1.Pod]) {
	var all []slowPod
	for i, rank := range slowRanks(pods, related) {
		if pods[i] != nil {
			all = append(all, slowPod{pods[i], rank})
		}
	}
	slices.SortStableFunc(all, func(p, q slowPod) int {
		_, c := slowCompare(p, q, now)
		return c
	})
	var distinct []slowPod
	for _, p := range all {
		if !slices.ContainsFunc(distinct, func(q slowPod) bool { return samePod(p, q) }) {
			distinct = append(distinct, p)
		}
	}
	n = max(0, min(n, len(pods)))
	for i, p := range distinct[:min(n, len(distinct))] {
		victims = append(victims, podrank.Victim[*corev1.Pod]{Object: p.Pod, Criterion: podrank.All})
		if n < len(distinct) {
			victims[i].Criterion, _ = slowCompare(p, distinct[n], now)
		}
	}
	return victims
}

func samePod(p, q slowPod) bool {
	switch {
	case p.UID != "" || q.UID != "":
		return p.UID == q.UID
	case p.Name != "" || q.Name != "":
		return p.Namespace == q.Namespace && p.Name == q.Name
	}
	return p.Pod == q.Pod
}

// A chooser makes pods out of few values, so that they are full of ties: out of
// random numbers in a property test, out of bytes in a fuzz test.
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

// withRepeats lists some pods again, some of them changed, and nil pods.
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
					_, c := slowCompare(slowPod{p, ranks[i]}, slowPod{q, ranks[j]}, now)
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
	for seed := range uint64(200) {
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
		for _, n := range []int{1, 100, 500, 995, 1000} {
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
