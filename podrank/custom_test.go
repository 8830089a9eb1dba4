// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/podrank"
)

// A machine is an object of a type that the package does not know.
type machine struct {
	metav1.ObjectMeta
	priority int8
	weight   float64
	tokens   uint64
	phase    string
	failed   bool
	deadline time.Time
	zone     string
}

// A step is a criterion, with a comparison function that has the same meaning.
type step struct {
	podrank.Criterion[*machine]
	compare func(p, q *machine) int
}

// steps holds criteria of several kinds and value types.
var steps = []step{
	{podrank.By("priority", func(m *machine) int8 { return m.priority }), func(p, q *machine) int { return cmp.Compare(p.priority, q.priority) }},
	{podrank.By("weight", func(m *machine) float64 { return m.weight }), func(p, q *machine) int { return cmp.Compare(p.weight, q.weight) }},
	{podrank.By("tokens", func(m *machine) uint64 { return m.tokens }), func(p, q *machine) int { return cmp.Compare(p.tokens, q.tokens) }},
	{podrank.By("phase", func(m *machine) string { return m.phase }), func(p, q *machine) int { return cmp.Compare(p.phase, q.phase) }},
	{podrank.First("failed", func(m *machine) bool { return m.failed }), func(p, q *machine) int { return trueFirst(p.failed, q.failed) }},
	{podrank.ByTime("deadline", func(m *machine) time.Time { return m.deadline }), func(p, q *machine) int { return p.deadline.Compare(q.deadline) }},
	{podrank.ByComparison("length", shorter), shorter},
	{podrank.Newest[*machine](), func(p, q *machine) int {
		return cmp.Or(trueFirst(p.CreationTimestamp.IsZero(), q.CreationTimestamp.IsZero()), q.CreationTimestamp.Compare(p.CreationTimestamp.Time))
	}},
	{podrank.Oldest[*machine](), func(p, q *machine) int { return p.CreationTimestamp.Compare(q.CreationTimestamp.Time) }},
	{podrank.Cost[*machine]("cost", "example.com/cost"), func(p, q *machine) int {
		return cmp.Compare(slowrank.ParseCost(p.Annotations["example.com/cost"]), slowrank.ParseCost(q.Annotations["example.com/cost"]))
	}},
}

func shorter(p, q *machine) int { return len(p.phase) - len(q.phase) }

func trueFirst(p, q bool) int {
	switch {
	case p == q:
		return 0
	case p:
		return -1
	}
	return 1
}

func (s step) reverse() step {
	return step{s.Reverse(), func(p, q *machine) int { return s.compare(q, p) }}
}

func (choose chooser) machines(n int) []*machine {
	machines := make([]*machine, n)
	for i := range machines {
		name := strconv.Itoa(i)
		machines[i] = &machine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, UID: pick(choose, types.UID("uid-"+name), ""), CreationTimestamp: metav1.NewTime(choose.instant()),
				Annotations: pick(choose, nil, map[string]string{"example.com/cost": pick(choose, "-1", "1", "none")}),
			},
			priority: pick[int8](choose, math.MinInt8, -1, 0, 1, math.MaxInt8),
			weight:   pick(choose, math.Inf(-1), -1, 0, math.Copysign(0, -1), 1, math.NaN(), math.Inf(1)),
			tokens:   pick[uint64](choose, 0, 1, math.MaxInt64, math.MaxInt64+1, math.MaxUint64),
			phase:    pick(choose, "", "a", "b", "ab"),
			failed:   choose(2) == 0,
			deadline: choose.instant(),
			zone:     pick(choose, "", "a", "b", "c"),
		}
		if choose(8) == 0 {
			deleted := metav1.NewTime(podtest.Now)
			machines[i].DeletionTimestamp = &deleted
		}
	}
	return machines
}

// steps chooses one to four criteria in any order, and reverses some of them.
func (choose chooser) steps() []step {
	chosen := slices.Clone(steps)
	for i := range chosen {
		j := i + choose(len(chosen)-i)
		chosen[i], chosen[j] = chosen[j], chosen[i]
		if choose(2) == 0 {
			chosen[i] = chosen[i].reverse()
		}
	}
	return chosen[:1+choose(4)]
}

func criteriaOf(steps []step) (criteria []podrank.Criterion[*machine]) {
	for _, s := range steps {
		criteria = append(criteria, s.Criterion)
	}
	return criteria
}

// decide compares two machines by the steps, and then by UID and name. One result is the criterion that decided.
func decide(steps []step, p, q *machine) (criterion string, c int) {
	for _, s := range steps {
		if c := s.compare(p, q); c != 0 {
			return s.Name(), c
		}
	}
	if c := cmp.Compare(p.UID, q.UID); c != 0 {
		return podrank.UID, c
	}
	return podrank.Name, cmp.Compare(p.Name, q.Name)
}

// checkCustomOrder makes an order from one to four criteria, and compares this order with a plain sort.
func checkCustomOrder(t *testing.T, choose chooser) {
	t.Helper()
	steps, machines := choose.steps(), choose.machines(1+choose(100))
	order, err := podrank.NewOrder(criteriaOf(steps)...)
	require.NoError(t, err)
	stays, goes := choose(3) == 0, choose(3) == 0
	opts := podrank.Options[*machine]{Order: order, Now: pick(choose, podtest.Now, never)}
	slow := steps
	if goes {
		opts.MustGo = func(m *machine) bool { return m.zone == "a" }
		slow = append([]step{{podrank.First(podrank.MustGo, opts.MustGo), func(p, q *machine) int { return trueFirst(p.zone == "a", q.zone == "a") }}}, slow...)
	}
	if stays {
		opts.MustStay = func(m *machine) bool { return m.failed }
		slow = append([]step{{podrank.First(podrank.MustStay, opts.MustStay), func(p, q *machine) int { return trueFirst(q.failed, p.failed) }}}, slow...)
	}

	sorted := slices.SortedFunc(slices.Values(machines), func(p, q *machine) int {
		_, c := decide(slow, p, q)
		return c
	})
	may := len(sorted)
	if i := slices.IndexFunc(sorted, func(m *machine) bool { return stays && m.failed }); i >= 0 {
		may = i
	}
	n := choose(len(machines) + 2)
	before, values := slices.Clone(machines), deepCopies(machines)
	victims := podrank.Select(machines, n, opts)
	require.Equal(t, before, machines, "the list is untouched")
	require.Equal(t, values, deepCopies(machines), "and so are the objects")
	require.Len(t, victims, min(n, may))
	for i, v := range victims {
		require.Samef(t, sorted[i], v.Object, "victim %d", i)
		want := podrank.All
		if len(victims) < len(sorted) {
			want, _ = decide(slow, v.Object, sorted[len(victims)])
		}
		require.Equal(t, want, v.Criterion)
	}
	for i := range machines {
		j := choose(i + 1)
		machines[i], machines[j] = machines[j], machines[i]
	}
	require.Equal(t, victims, podrank.Select(machines, n, opts), "the order of the list does not matter")
	for i, v := range podrank.Explain(machines, opts) {
		require.Same(t, sorted[i], v.Object)
		if i < may {
			require.Equal(t, podrank.Select(machines, i+1, opts)[i], v, "what Select says of the last")
			continue
		}
		require.Equal(t, podrank.MustStay, v.Criterion)
		require.Equal(t, "must stay", v.Explain())
	}
}

func deepCopies(machines []*machine) (copies []machine) {
	for _, m := range machines {
		c := *m
		c.weight = 0 // NaN is not equal to itself
		m.DeepCopyInto(&c.ObjectMeta)
		copies = append(copies, c)
	}
	return copies
}

func TestCustomOrdersAreAsAPlainSort(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		checkCustomOrder(t, randomly(seed))
	}
}

func FuzzOrder(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("machines by priority"))
	f.Add([]byte{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 255, 254, 253, 252, 251, 250, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233})
	f.Fuzz(func(t *testing.T, data []byte) { checkCustomOrder(t, fromBytes(data)) })
}

// An order with Spread must agree with a greedy algorithm that takes one object at a time. For Spread, the
// algorithm prefers the domain with the most remaining objects.
func TestSpreadIsGreedy(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		choose := randomly(seed)
		machines, steps := choose.machines(1+choose(60)), choose.steps()
		at := choose(len(steps) + 1)
		zone := func(m *machine) string { return m.zone }
		order := podrank.Must(podrank.NewOrder(slices.Insert(criteriaOf(steps), at, podrank.Spread("zone", zone))...))
		opts := podrank.Options[*machine]{Order: order, Related: pick(choose, nil, append(choose.machines(20), machines...))}

		counts := map[string]int{}
		for _, m := range pick(func(int) int { return min(len(opts.Related), 1) }, machines, opts.Related) {
			if m.DeletionTimestamp == nil {
				counts[m.zone]++
			}
		}
		fullest := step{compare: func(p, q *machine) int { return cmp.Compare(counts[q.zone], counts[p.zone]) }}
		slow := slices.Insert(slices.Clone(steps), at, fullest)
		left := slices.Clone(machines)
		for i, v := range podrank.Explain(machines, opts) {
			next := slices.MinFunc(left, func(p, q *machine) int {
				_, c := decide(slow, p, q)
				return c
			})
			require.Samef(t, next, v.Object, "seed %d, place %d", seed, i)
			left = slices.DeleteFunc(left, func(m *machine) bool { return m == next })
			counts[next.zone]--
		}
		require.Empty(t, left)
	}
}

func names(victims []podrank.Victim[*machine]) (names []string) {
	for _, v := range victims {
		names = append(names, v.Object.Name)
	}
	return names
}

func zoned(zones ...string) (machines []*machine) {
	for i, zone := range zones {
		name := zone + strconv.Itoa(i)
		machines = append(machines, &machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, zone: zone})
	}
	return machines
}

func TestSpreadAndPacked(t *testing.T) {
	t.Parallel()
	zone := func(m *machine) string { return m.zone }
	machines := zoned("a", "a", "a", "b", "b", "b", "c")
	spread := podrank.Options[*machine]{Order: podrank.Must(podrank.NewOrder(podrank.Spread("zone", zone)))}
	packed := podrank.Options[*machine]{Order: podrank.Must(podrank.NewOrder(podrank.Packed("zone", zone)))}
	t.Run("Spread leaves every zone as full as the others", func(t *testing.T) {
		t.Parallel()
		victims := podrank.Select(machines, 4, spread)
		assert.Equal(t, []string{"a0", "b3", "a1", "b4"}, names(victims))
		assert.Equal(t, "3 in a > 1 in a", victims[0].Explain())
	})
	t.Run("Packed empties one zone after the other", func(t *testing.T) {
		t.Parallel()
		victims := podrank.Select(machines, 5, packed)
		assert.Equal(t, []string{"c6", "a0", "a1", "a2", "b3"}, names(victims))
		assert.Equal(t, "1 in c < 3 in b", victims[0].Explain())
		assert.Equal(t, "3 in a < 3 in b", victims[1].Explain())
		assert.Equal(t, podrank.UID, victims[4].Criterion)
	})
	t.Run("no domain is one too", func(t *testing.T) {
		t.Parallel()
		victims := podrank.Select(zoned("", "", "a"), 1, spread)
		assert.Equal(t, "2 in no zone > 1 in no zone", victims[0].Explain())
	})
	t.Run("related objects are counted in place of the objects, those being deleted are not", func(t *testing.T) {
		t.Parallel()
		related := zoned("c", "c", "c", "c", "b", "b", "b", "b", "b")
		deleted := metav1.NewTime(podtest.Now)
		for _, m := range related[5:] {
			m.DeletionTimestamp = &deleted
		}
		opts := spread
		opts.Related = slices.Concat(related, []*machine{nil})
		victims := podrank.Select(machines, 1, opts)
		assert.Equal(t, []string{"c6"}, names(victims))
	})
}

// In an order of 150 criteria, each criterion decides between two objects that are equal in all earlier criteria.
func TestAnOrderOfManyCriteria(t *testing.T) {
	t.Parallel()
	const many = 150
	var criteria []podrank.Criterion[*machine]
	for i := range many {
		annotation := "example.com/" + strconv.Itoa(i)
		stated := func(m *machine) bool { return m.Annotations[annotation] != "" }
		c := podrank.First("stated-"+strconv.Itoa(i), stated)
		switch i % 7 {
		case 1:
			c = podrank.Cost[*machine]("cost-"+strconv.Itoa(i), annotation).Reverse()
		case 2:
			c = podrank.By("length-"+strconv.Itoa(i), func(m *machine) int { return -len(m.Annotations[annotation]) })
		case 3:
			c = podrank.By("text-"+strconv.Itoa(i), func(m *machine) string { return m.Annotations[annotation] }).Reverse()
		case 4:
			c = podrank.First("missing-"+strconv.Itoa(i), func(m *machine) bool { return !stated(m) }).Reverse()
		}
		criteria = append(criteria, c)
	}
	order, err := podrank.NewOrder(criteria...)
	require.NoError(t, err)
	// The order of these machines by UID is the opposite of their order by the criteria.
	var machines []*machine
	for i := range many {
		m := &machine{}
		m.UID = types.UID(strconv.Itoa(many - i + 100))
		m.Annotations = map[string]string{"example.com/" + strconv.Itoa(i): "1"}
		machines = append(machines, m)
	}
	machines = append(machines, &machine{})
	slices.Reverse(machines)

	victims := podrank.Explain(machines, podrank.Options[*machine]{Order: order})
	require.Len(t, victims, many+1)
	for i, c := range criteria {
		assert.Same(t, machines[many-i], victims[i].Object)
		assert.Equal(t, c.Name(), victims[i].Criterion)
	}
}

// The function of a criterion is called at most once for each object. The function is called only for objects that
// are equal to another object in all earlier criteria. Calls for Victim.Values do not count.
func TestCriteriaAreAskedOnlyWhereTheyDecide(t *testing.T) {
	t.Parallel()
	machines := make([]*machine, 1000)
	for i := range machines {
		machines[i] = &machine{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i))}}
	}
	number := func(m *machine) int {
		n, err := strconv.Atoi(m.Name)
		require.NoError(t, err)
		return n
	}
	var calls map[string]int
	counting := func(name string, value func(m *machine) int) podrank.Criterion[*machine] {
		return podrank.By(name, func(m *machine) int {
			calls[name+" "+m.Name]++
			calls[name]++
			return value(m)
		})
	}
	hundreds := counting("hundreds", func(m *machine) int { return number(m) / 100 })
	digits := counting("digits", func(m *machine) int { return number(m) % 10 })
	for _, tt := range []struct{ n, digits int }{{99, 100}, {100, 200}, {150, 200}, {999, 1000}} {
		calls = map[string]int{}
		victims := podrank.Select(machines, tt.n, podrank.Options[*machine]{Order: podrank.Must(podrank.NewOrder(hundreds, digits))})
		require.Len(t, victims, tt.n)
		values := map[string]int{} // the calls for Victim.Values, by criterion
		for _, v := range victims {
			values[v.Criterion]++
		}
		for name, n := range values {
			calls[name] -= n
		}
		assert.InDelta(t, 1000, calls["hundreds"], 1)
		assert.InDelta(t, tt.digits, calls["digits"], 1, "%d, and 1 for the survivor's value", tt.n)
	}
}
