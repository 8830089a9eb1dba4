// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
)

func TestNewOrderRefuses(t *testing.T) {
	t.Parallel()
	priority := podrank.By("priority", func(*corev1.Pod) int { return 0 })
	for want, criteria := range map[string][]podrank.Criterion[*corev1.Pod]{
		`podrank: order has no criteria`:                                     nil,
		`podrank: criterion 1 has no name`:                                   {priority, {}},
		`podrank: criterion 0 has no name`:                                   {podrank.First("", func(*corev1.Pod) bool { return true })},
		`podrank: criterion "priority" is listed twice`:                      {priority, podrank.Phase(), priority.Reverse()},
		`podrank: criterion "uid": the name is reserved`:                     {podrank.By("uid", func(*corev1.Pod) int { return 0 })},
		`podrank: criterion "all": the name is reserved`:                     {podrank.By("all", func(*corev1.Pod) int { return 0 })},
		`podrank: criterion "by": function is nil`:                           {podrank.By[*corev1.Pod, int]("by", nil)},
		`podrank: criterion "compared": function is nil`:                     {podrank.ByComparison[*corev1.Pod]("compared", nil)},
		`podrank: criterion "by facts": function is nil`:                     {podrank.ByFacts[*corev1.Pod, int]("by facts", nil)},
		`podrank: criterion "first": function is nil`:                        {podrank.First[*corev1.Pod]("first", nil).Reverse()},
		`podrank: criterion "time": function is nil`:                         {podrank.ByTime[*corev1.Pod]("time", nil)},
		`podrank: criterion "spread": function is nil`:                       {podrank.Spread[*corev1.Pod]("spread", nil)},
		`podrank: criterion "packed": function is nil`:                       {podrank.Packed[*corev1.Pod]("packed", nil)},
		`podrank: criterion "node-leaving": function is nil`:                 {podrank.NodeLeaving(nil)},
		`podrank: criterion "not-available": minReadySeconds -5 is negative`: {podrank.NotAvailable(-5)},
		`podrank: criterion "zone": no node has a value`:                     {podrank.Topology("zone", nil)},
		`podrank: criterion "zone": node "n2" has an empty value`:            {podrank.Topology("zone", map[string]string{"n1": "a", "n2": "", "n3": ""})},
		`podrank: criterion "cost": annotation has no name`:                  {podrank.Cost[*corev1.Pod]("cost", "")},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, err := podrank.NewOrder(criteria...)
			require.EqualError(t, err, want)
		})
	}
	t.Run("Must panics with the error", func(t *testing.T) {
		t.Parallel()
		assert.PanicsWithError(t, "podrank: order has no criteria", func() { podrank.Must(podrank.NewOrder[*corev1.Pod]()) })
	})
}

func TestOrder(t *testing.T) {
	t.Parallel()
	const kubernetes = "unassigned, phase, not-ready, deletion-cost, colocation, ready-time, restarts, sidecar-restarts, creation-time"
	t.Run("the zero Order stands for Kubernetes' if the objects are pods", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, kubernetes, podrank.Kubernetes().String())
		assert.Equal(t, kubernetes, podrank.Order[*corev1.Pod]{}.String())
		assert.Nil(t, podrank.Order[*corev1.Pod]{}.Criteria())
	})
	t.Run("and for the newest first if they are not", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, "newest", podrank.Order[*machine]{}.String())
		assert.Equal(t, "newest", podrank.Order[metav1.Object]{}.String())
	})
	t.Run("Without leaves criteria out", func(t *testing.T) {
		t.Parallel()
		order, err := podrank.Kubernetes().Without("deletion-cost", "colocation")
		require.NoError(t, err)
		assert.Equal(t, "unassigned, phase, not-ready, ready-time, restarts, sidecar-restarts, creation-time", order.String())
		assert.Equal(t, kubernetes, podrank.Kubernetes().String(), "an order never changes")
		_, err = order.Without("phase", "deletion cost")
		require.EqualError(t, err, `podrank: criterion "deletion cost" is not in the order `+order.String())
		_, err = podrank.Order[*machine]{}.Without("newest")
		require.EqualError(t, err, "podrank: order has no criteria")
	})
	t.Run("without deletion costs they do not count", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{podtest.Pod("b", podtest.Cost("-1")), podtest.Pod("a")}
		order := podrank.Must(podrank.Kubernetes().Without("deletion-cost"))
		assert.Equal(t, []string{"b"}, namesOf(podrank.Select(pods, 1, podrank.PodOptions{})))
		assert.Equal(t, []string{"a"}, namesOf(podrank.Select(pods, 1, podrank.PodOptions{Order: order})))
	})
	t.Run("Before puts criteria in front of one", func(t *testing.T) {
		t.Parallel()
		order, err := podrank.Kubernetes().Before("phase", podrank.NotAvailable(5), podrank.Newest[*corev1.Pod]())
		require.NoError(t, err)
		assert.Equal(t, "unassigned, not-available, newest, "+kubernetes[len("unassigned, "):], order.String())
		_, err = order.Before("newest", podrank.Phase())
		require.EqualError(t, err, `podrank: criterion "phase" is listed twice`)
		_, err = order.Before("age", podrank.Oldest[*corev1.Pod]())
		require.EqualError(t, err, `podrank: criterion "age" is not in the order `+order.String())
	})
	t.Run("the slices are the caller's", func(t *testing.T) {
		t.Parallel()
		criteria := []podrank.Criterion[*corev1.Pod]{podrank.Phase(), podrank.NotReady()}
		order := podrank.Must(podrank.NewOrder(criteria...))
		criteria[0] = podrank.Restarts()
		order.Criteria()[1] = podrank.Restarts()
		assert.Equal(t, "phase, not-ready", order.String())
	})
}

// In each case, the criterion chooses the first of two pods, although the UID of this pod comes last. Most of
// these criteria are not part of Kubernetes' order.
func TestPodCriteria(t *testing.T) {
	t.Parallel()
	zones := map[string]string{"node-1": "a", "node-2": "b"}
	for _, tt := range []struct {
		name          string
		by            podrank.Criterion[*corev1.Pod]
		first, second []podtest.Option
		explained     string
	}{
		{"not ready", podrank.NotAvailable(0), with(podtest.NotReady), nil, "not available"},
		{"ready for less than minReadySeconds", podrank.NotAvailable(60), with(readyFor(59 * time.Second)), with(readyFor(time.Minute)), "not available"},
		{"ready since an unknown time", podrank.NotAvailable(60), with(podtest.ReadySince(never)), nil, "not available"},
		{"the node is leaving", podrank.NodeLeaving(func(node string) bool { return node != "node-1" }), with(podtest.On("node-2")), nil, "node is leaving"},
		{"pods without a node are on none that leaves", podrank.NodeLeaving(func(node string) bool { return node == "" || node == "node-2" }), with(podtest.On("node-2")), with(podtest.On("")), "node is leaving"},
		{"the fuller zone", podrank.Topology("zone", zones), with(podtest.On("node-2")), nil, "2 in b > 1 in a"},
		{"newest", podrank.Newest[*corev1.Pod](), with(createdFor(5 * time.Hour)), with(createdFor(6 * time.Hour)), "age 5h < 6h"},
		{"oldest", podrank.Oldest[*corev1.Pod](), with(createdFor(6 * time.Hour)), with(createdFor(5 * time.Hour)), "age 6h > 5h"},
		{"newest in reverse", podrank.Newest[*corev1.Pod]().Reverse(), with(createdFor(6 * time.Hour)), with(createdFor(5 * time.Hour)), "age 6h > 5h"},
		{"created at an unknown time", podrank.Oldest[*corev1.Pod](), with(podtest.Created(never)), nil, "creation time unknown"},
		{"not ready before ready since an unknown time", podrank.ReadyTime(), with(podtest.NotReady), with(podtest.ReadySince(never)), "not ready"},
		{"ready", podrank.NotReady().Reverse(), nil, with(podtest.NotReady), "ready"},
		{"the longer ready", podrank.ReadyTime().Reverse(), with(readyFor(9 * time.Hour)), with(readyFor(time.Hour)), "ready for 9h > 1h"},
		{"by a number", podrank.By("port", func(p *corev1.Pod) uint16 { return uint16(len(p.Annotations)) }), nil, with(podtest.Cost("")), "port 0 < 1"},
		{"by a higher number", podrank.By("port", func(p *corev1.Pod) uint16 { return uint16(len(p.Annotations)) }).Reverse(), with(podtest.Cost("")), nil, "port 1 > 0"},
		{"by a string", podrank.By("node", func(p *corev1.Pod) string { return p.Spec.NodeName }), nil, with(podtest.On("node-2")), "node node-1 < node-2"},
		{"by a time", podrank.ByTime("creation", func(p *corev1.Pod) time.Time { return p.CreationTimestamp.Time }), with(podtest.Created(never)), nil, "creation unknown < 2026-05-04T11:00:00Z"},
		{"by a comparison", podrank.ByComparison("node", byNode), nil, with(podtest.On("node-2")), "node: before default/a"},
		{"by a comparison in reverse", podrank.ByComparison("node", byNode).Reverse(), with(podtest.On("node-2")), nil, "node: before default/a"},
		{"by what it is", podrank.First("unassigned", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" }), with(podtest.On("")), nil, "unassigned"},
		{"by what it is not", podrank.First("unassigned", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" }).Reverse(), nil, with(podtest.On("")), "not unassigned"},
		{"by the opposite of not", podrank.First("not mine", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" }).Reverse(), nil, with(podtest.On("")), "mine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			first, second := podtest.Pod("z", tt.first...), podtest.Pod("a", tt.second...)
			related := []*corev1.Pod{podtest.Pod("r", podtest.On("node-1")), podtest.Pod("s", podtest.On("node-2")), podtest.Pod("t", podtest.On("node-2"))}
			opts := podrank.PodOptions{Now: podtest.Now, Related: related, Order: podrank.Must(podrank.NewOrder(tt.by))}
			victims := podrank.Select([]*corev1.Pod{second, first}, 1, opts)
			require.Len(t, victims, 1)
			assert.Same(t, first, victims[0].Object)
			assert.Equal(t, tt.by.Name(), victims[0].Criterion)
			assert.Equal(t, tt.explained, victims[0].Explain())
		})
	}
}

func byNode(p, q *corev1.Pod) int { return strings.Compare(p.Spec.NodeName, q.Spec.NodeName) }

func TestByComparison(t *testing.T) {
	t.Parallel()
	t.Run("the victims do not depend on the order of the list, and equal ones are left to the next criterion", func(t *testing.T) {
		t.Parallel()
		order := podrank.Must(podrank.NewOrder(podrank.ByComparison("node", byNode), podrank.Oldest[*corev1.Pod]()))
		value := podrank.Must(podrank.NewOrder(podrank.By("node", func(p *corev1.Pod) string { return p.Spec.NodeName }), podrank.Oldest[*corev1.Pod]()))
		for n := range 40 {
			pods := podtest.Fleet(40, 5, uint64(n))
			want := namesOf(podrank.Select(pods, n, podrank.PodOptions{Now: podtest.Now, Order: value}))
			assert.Equal(t, want, namesOf(podrank.Select(pods, n, podrank.PodOptions{Now: podtest.Now, Order: order})))
			assert.Equal(t, want, namesOf(podrank.Select(shuffled(pods, uint64(n)), n, podrank.PodOptions{Now: podtest.Now, Order: order})))
		}
	})
	t.Run("only objects that are equal so far are compared", func(t *testing.T) {
		t.Parallel()
		compared := podrank.ByComparison("never", func(p, q *corev1.Pod) int {
			assert.Equal(t, p.Spec.NodeName, q.Spec.NodeName)
			return strings.Compare(p.Name, q.Name)
		})
		order := podrank.Must(podrank.NewOrder(podrank.By("node", func(p *corev1.Pod) string { return p.Spec.NodeName }), compared))
		assert.Len(t, podrank.Select(podtest.Fleet(40, 5, 1), 20, podrank.PodOptions{Order: order}), 20)
	})
	t.Run("a comparison that is no order chooses all the same", func(t *testing.T) {
		t.Parallel()
		order := podrank.Must(podrank.NewOrder(podrank.ByComparison("first", func(_, _ *corev1.Pod) int { return -1 })))
		assert.Len(t, podrank.Select(podtest.Fleet(40, 5, 1), 20, podrank.PodOptions{Order: order}), 20)
	})
	t.Run("the values of a victim are the two names", func(t *testing.T) {
		t.Parallel()
		victims := podrank.Select([]*corev1.Pod{podtest.Pod("b"), podtest.Pod("a", podtest.On("node-2"))}, 1, podrank.PodOptions{Order: podrank.Must(podrank.NewOrder(podrank.ByComparison("node", byNode)))})
		assert.Equal(t, "default/b", victims[0].Values.Victim)
		assert.Equal(t, "default/a", victims[0].Values.Survivor)
	})
}

func TestByFacts(t *testing.T) {
	t.Parallel()
	t.Run("the facts are those of the selection", func(t *testing.T) {
		t.Parallel()
		pods, related := []*corev1.Pod{podtest.Pod("a"), nil, podtest.Pod("b")}, podtest.Fleet(3, 1, 1)
		by := podrank.ByFacts("facts", func(facts podrank.Facts[*corev1.Pod]) func(*corev1.Pod) int {
			assert.Equal(t, podtest.Now, facts.Now)
			assert.Equal(t, []*corev1.Pod{pods[0], pods[2]}, facts.Objects, "without nil ones")
			assert.Equal(t, related, facts.Related)
			return func(p *corev1.Pod) int { return -len(p.Name) - int(p.Name[0]) }
		})
		victims := podrank.Select(pods, 1, podrank.PodOptions{Now: podtest.Now, Related: related, Order: podrank.Must(podrank.NewOrder(by))})
		assert.Equal(t, []string{"b"}, namesOf(victims))
	})
	t.Run("no function, no difference", func(t *testing.T) {
		t.Parallel()
		by := podrank.ByFacts("facts", func(podrank.Facts[*corev1.Pod]) func(*corev1.Pod) int { return nil })
		pods := []*corev1.Pod{podtest.Pod("b"), podtest.Pod("a")}
		victims := podrank.Select(pods, 1, podrank.PodOptions{Order: podrank.Must(podrank.NewOrder(by.Reverse()))})
		assert.Equal(t, []string{"a"}, namesOf(victims))
		assert.Equal(t, podrank.UID, victims[0].Criterion)
	})
}

func TestMustGoAndMustStay(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{podtest.Pod("a", podtest.NotReady), podtest.Pod("b"), podtest.Pod("c"), podtest.Pod("d")}
	named := func(names ...string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool { return slices.Contains(names, p.Name) }
	}
	for _, tt := range []struct {
		name           string
		mustGo, stays  func(*corev1.Pod) bool
		n              int
		want, explains []string
	}{
		{"what must go goes first", named("d"), nil, 2, []string{"d", "a"}, []string{"must go", "not ready"}},
		{"among those that must go the order decides", named("d", "c"), nil, 1, []string{"c"}, []string{"UID uid-c < uid-d"}},
		{"what must stay is no victim", nil, named("a"), 1, []string{"b"}, []string{"UID uid-b < uid-c"}},
		{"staying beats going", named("a", "d"), named("a"), 1, []string{"d"}, []string{"must go"}},
		{"all but those that must stay", nil, named("a", "c"), 4, []string{"b", "d"}, []string{"all others must stay", "all others must stay"}},
		{"all must stay", nil, named("a", "b", "c", "d"), 2, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			victims := podrank.Select(pods, tt.n, podrank.PodOptions{Now: podtest.Now, MustGo: tt.mustGo, MustStay: tt.stays})
			assert.Equal(t, tt.want, namesOf(victims))
			var explains []string
			for _, v := range victims {
				explains = append(explains, v.Explain())
			}
			assert.Equal(t, tt.explains, explains)
		})
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	t.Run("the whole order, and what decides between each two neighbors", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{podtest.Pod("d"), podtest.Pod("b", podtest.NotReady), nil, podtest.Pod("c", podtest.Cost("-1")), podtest.Pod("a", podtest.On("")), podtest.Pod("d")}
		var lines []string
		for _, v := range podrank.Explain(pods, podrank.PodOptions{Now: podtest.Now}) {
			lines = append(lines, v.Object.Name+": "+v.Explain())
		}
		assert.Equal(t, []string{"a: unassigned", "b: not ready", "c: deletion cost -1 < 0", "d: all go"}, lines)
	})
	t.Run("nothing gives nil", func(t *testing.T) {
		t.Parallel()
		assert.Nil(t, podrank.Explain(nil, podrank.PodOptions{}))
		assert.Nil(t, podrank.Explain([]*corev1.Pod{nil}, podrank.PodOptions{}))
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{podtest.Pod("a", podtest.Cost("-1")), podtest.Pod("b", podtest.Cost("008")), nil, podtest.Pod("c", podtest.On("")), podtest.Pod("d", podtest.On("node-9"))}
	t.Run("invalid deletion costs are reported", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, podrank.Check(pods, podrank.PodOptions{}),
			`podrank: "default/b": criterion "deletion-cost": annotation "controller.kubernetes.io/pod-deletion-cost": "008" is not a decimal number of 32 bits`)
		require.NoError(t, podrank.Check(pods, podrank.PodOptions{Order: podrank.Must(podrank.Kubernetes().Without("deletion-cost"))}))
	})
	t.Run("nodes without a value are reported", func(t *testing.T) {
		t.Parallel()
		zone := podrank.Topology("zone", map[string]string{"node-1": "a"})
		require.EqualError(t, podrank.Check(pods, podrank.PodOptions{Order: podrank.Must(podrank.NewOrder(zone))}),
			`podrank: "default/d": criterion "zone": node "node-9" has no value`)
	})
	t.Run("ten errors are listed", func(t *testing.T) {
		t.Parallel()
		var many []*machine
		for i := range 25 {
			name := strconv.Itoa(i)
			many = append(many, &machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{"cost": "high"}}})
		}
		err := podrank.Check(many, podrank.Options[*machine]{Order: podrank.Must(podrank.NewOrder(podrank.Cost[*machine]("cost", "cost")))})
		require.ErrorContains(t, err, `podrank: "9": criterion "cost": annotation "cost": "high" is not a decimal number of 32 bits`)
		require.NotContains(t, err.Error(), `podrank: "10"`)
		require.ErrorContains(t, err, "(15 more left out)")
	})
}
