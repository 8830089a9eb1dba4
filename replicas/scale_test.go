// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// A step describes a plan by numbers. It contains the numbers of existing and wanted children, the limits, and the
// expected plan.
type step struct {
	// The number of children is step.have. For step.must of these children, only the rule MustGo returns true. For
	// step.stay children, only the rule MustStay returns true. For step.both children, both rules return true.
	have, must, stay, both int
	going                  int // active children that are being deleted; not included in have
	want                   int32
	burst, held            int
	max                    *int

	create, remove, deferred, kept int
}

// children returns the children of the step. The first letter of a child's name says whether the child must go, must
// stay, both or neither.
func (s step) children() []*worker {
	rs := replicaSet(s.want)
	var children []*worker
	for i := range s.have {
		kind := "any"
		switch {
		case i < s.both:
			kind = "both"
		case i < s.both+s.must:
			kind = "must"
		case i < s.both+s.must+s.stay:
			kind = "stay"
		}
		children = append(children, newWorker(rs, fmt.Sprintf("%s-%d", kind, i), i))
	}
	for i := range s.going { // some of these children must go or must stay
		going := newWorker(rs, fmt.Sprintf("%s-going-%d", []string{"any", "must", "stay", "both"}[i%4], i), i)
		going.DeletionTimestamp = &metav1.Time{Time: podtest.Now}
		children = append(children, going)
	}
	return children
}

func (s step) spec() replicas.Spec[*worker] {
	spec := workerSpec(s.want)
	spec.BurstReplicas, spec.Facts.Undecided, spec.MaxDeletions = s.burst, orphans(s.held), s.max
	spec.Rules.Active = func(*worker) bool { return true }
	spec.Rules.MustGo = func(w *worker) bool { return w.Name[0] == 'm' || w.Name[0] == 'b' }
	spec.Rules.MustStay = func(w *worker) bool { return w.Name[0] == 's' || w.Name[0] == 'b' }
	return spec
}

func TestScaleCounts(t *testing.T) {
	t.Parallel()
	none, two, five := 0, 2, 5
	for name, s := range map[string]step{
		"those that must go do though none is in surplus":                 {have: 3, must: 1, want: 3, remove: 1},
		"they are part of the surplus":                                    {have: 5, must: 1, want: 3, remove: 2},
		"they may be more than the surplus":                               {have: 5, must: 3, want: 4, remove: 3},
		"what is missing is created first":                                {have: 3, must: 1, want: 5, create: 2, kept: 1},
		"what must go waits for one that is going, too":                   {have: 2, must: 1, going: 1, want: 3, kept: 1},
		"and for one that may be adopted":                                 {have: 2, must: 1, held: 1, want: 3, kept: 1},
		"a burst caps them":                                               {have: 9, must: 5, want: 9, burst: 2, remove: 2, deferred: 3},
		"what must stay is not deleted":                                   {have: 5, stay: 4, want: 0, remove: 1},
		"it counts as a replica":                                          {have: 5, stay: 5, want: 5},
		"what must both go and stay stays":                                {have: 3, both: 3, want: 3},
		"no more is deleted than the budget allows":                       {have: 9, want: 3, max: &two, remove: 2, deferred: 4},
		"the budget may be above the burst":                               {have: 9, want: 3, burst: 1, max: &five, remove: 5, deferred: 1},
		"which is then for creations only":                                {have: 3, want: 9, burst: 1, max: &five, create: 1, deferred: 5},
		"a budget of none stops what must go":                             {have: 3, must: 2, want: 3, max: &none, deferred: 2},
		"a budget of none stops no creation":                              {have: 3, must: 2, want: 5, max: &none, create: 2, kept: 2},
		"a held place is not filled":                                      {have: 1, held: 1, want: 3, create: 1},
		"more pending adoptions than children are missing create nothing": {have: 1, held: 5, want: 3},
		"nor do as many as there can be":                                  {have: 5, stay: 5, held: 100, want: 3},
		"nothing is deleted because of pending adoptions":                 {have: 3, held: 5, want: 3},
		"a surplus is deleted whatever places are held":                   {have: 5, held: 2, want: 3, remove: 2},
		"creations beyond the burst are for later":                        {held: 1, burst: 2, want: 6, create: 2, deferred: 3},
		"nothing is for later that may never be deleted, as it is":        {have: 4, stay: 3, want: 0, burst: 1, remove: 1},
		"one that is being deleted is of the surplus":                     {have: 2, going: 1, want: 2},
		"it is not deleted again, whatever it is":                         {have: 3, going: 4, want: 2, remove: 1},
		"nor is it replaced before it is gone":                            {have: 2, going: 1, want: 3},
		"it is no more than that":                                         {have: 2, going: 1, want: 4, create: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.check(t)
		})
	}
}

// check compares the plan of Manage with the expected plan in the step.
func (s step) check(t *testing.T) {
	t.Helper()
	children := s.children()
	plan, err := replicas.Manage(children, s.spec())
	require.NoError(t, err)
	require.Equal(t, []int{s.create, s.remove, s.deferred, s.kept}, []int{plan.Scale.Create, len(plan.Scale.Delete), plan.Scale.Deferred, plan.Scale.Kept}, "create, delete, deferred, kept of %+v", s)
	require.Equal(t, children, append([]*worker(nil), plan.Claims.Owned...))
	for i, d := range plan.Scale.Delete {
		require.NotContains(t, []byte{'s', 'b'}, d.Object.Name[0], "who must stay")
		require.Nil(t, d.Object.DeletionTimestamp, "who goes already")
		require.Equal(t, i < s.must, d.Object.Name[0] == 'm', "those that must go come first")
		if i < s.must && s.remove == s.must && s.have > s.must+s.stay+s.both {
			require.Equal(t, podrank.MustGo, d.Criterion)
		}
	}
}

// decide computes the expected plan independently of Manage. It removes and adds the children one by one.
func (s step) decide() step {
	burst := s.burst
	if burst == 0 {
		burst = replicas.DefaultBurstReplicas
	}
	limit := burst
	if s.max != nil {
		limit = *s.max
	}
	s.create, s.remove, s.deferred, s.kept = 0, 0, 0, 0
	must, may := s.must, s.have-s.stay-s.both
	if s.have < int(s.want) { // children that must go are kept while another child is missing
		s.kept, must = must, 0
	}
	for have := s.have; may > 0 && (must > 0 || have > int(s.want)); have-- {
		may--
		must-- // children that must go are deleted first
		if s.remove < limit {
			s.remove++
		} else {
			s.deferred++
		}
	}
	for have := s.have + s.going + s.held; s.remove == 0 && have < int(s.want); have++ {
		if s.create < burst {
			s.create++
		} else {
			s.deferred++
		}
	}
	return s
}

func TestScaleAgreesWithItsTwin(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := step{both: r.IntN(3), must: r.IntN(5), stay: r.IntN(5), want: int32(r.IntN(14)), burst: r.IntN(6), held: max(0, r.IntN(6)-2)}
		s.have, s.going = s.both+s.must+s.stay+r.IntN(8), max(0, r.IntN(7)-3)
		if r.IntN(2) == 0 {
			limit := r.IntN(5)
			s.max = &limit
		}
		s.decide().check(t)
	}
}

func FuzzScale(f *testing.F) {
	f.Add(uint8(5), uint8(1), uint8(1), uint8(0), uint8(0), int32(3), 0, 0, -1)
	f.Add(uint8(9), uint8(9), uint8(0), uint8(3), uint8(2), int32(20), 2, 3, 0)
	f.Add(uint8(0), uint8(0), uint8(0), uint8(0), uint8(1), int32(-1), -1, -1, -7)
	f.Fuzz(func(t *testing.T, others, must, stay, both, going uint8, want int32, burst, held, limit int) {
		s := step{both: int(both % 20), must: int(must % 20), stay: int(stay % 20), want: want % 2000, burst: burst, held: max(held%300, 0)}
		s.have = s.both + s.must + s.stay + int(others)
		if limit != -1 {
			s.max = &limit
		}
		if s.want < 0 || s.burst < 0 || s.held < 0 || limit < -1 {
			plan, err := replicas.Manage(s.children(), s.spec())
			require.Error(t, err)
			require.Zero(t, plan)
			return
		}
		s.decide().check(t)
	})
}

func TestScaleRefuses(t *testing.T) {
	t.Parallel()
	negative := -1
	for name, tt := range map[string]struct {
		change func(*replicas.Spec[*worker])
		want   string
	}{
		"a negative limit":                {func(s *replicas.Spec[*worker]) { s.MaxDeletions = &negative }, "max deletions -1 is negative"},
		"an undecided orphan that is nil": {func(s *replicas.Spec[*worker]) { s.Facts.Undecided = []*worker{nil} }, "facts.undecided[0] is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(1)
			tt.change(&spec)
			plan, err := replicas.Manage(nil, spec)
			require.EqualError(t, err, `replicas: ReplicaSet "default/web": `+tt.want)
			assert.Zero(t, plan)
			_, err = replicas.ScaleTo(nil, spec)
			require.EqualError(t, err, `replicas: ReplicaSet "default/web": `+tt.want)
		})
	}
	t.Run("nothing that makes a new worker, if one is missing", func(t *testing.T) {
		t.Parallel()
		const want = `replicas: ReplicaSet "default/web": New is nil, and *replicas_test.worker is not a pod`
		spec := workerSpec(1)
		spec.New = nil
		plan, err := replicas.Manage(nil, spec)
		require.EqualError(t, err, want)
		assert.Zero(t, plan)
		scale, err := replicas.ScaleTo(nil, spec)
		require.NoError(t, err)
		assert.Equal(t, 1, scale.Create)
		_, err = scale.New(0)
		require.EqualError(t, err, want)
	})
	t.Run("nothing is needed to make a worker that nobody misses", func(t *testing.T) {
		t.Parallel()
		spec := workerSpec(0)
		spec.New = nil
		plan, err := replicas.Manage([]*worker{newWorker(replicaSet(0), "a", 1)}, spec)
		require.NoError(t, err)
		assert.Len(t, plan.Scale.Delete, 1)
	})
	t.Run("a spec without anything", func(t *testing.T) {
		t.Parallel()
		_, err := replicas.Manage([]*worker{nil}, replicas.Spec[*worker]{})
		require.EqualError(t, err, "replicas: owner is nil")
	})
}

// If Pending is Expired, the list may be older than the last creations and deletions. A plan from this list creates
// and deletes nothing.
func TestViewIsOld(t *testing.T) {
	t.Parallel()
	none := 0
	for name, tt := range map[string]struct {
		step
		blocked replicas.BlockedReason
	}{
		"E3 nothing is created":                      {step{have: 1, want: 3}, replicas.ViewIsStale},
		"E3 nothing is deleted":                      {step{have: 3, want: 1}, replicas.ViewIsStale},
		"E3 nor what must go":                        {step{have: 3, must: 1, want: 3}, replicas.ViewIsStale},
		"E3 a plan that does nothing needs no list":  {step{have: 3, want: 3}, ""},
		"E3 one that may do nothing does":            {step{have: 3, want: 1, max: &none}, replicas.ViewIsStale},
		"E3 and one whose children must stay":        {step{have: 3, stay: 3, want: 1}, replicas.ViewIsStale},
		"E3 nor one that holds all that are missing": {step{have: 3, want: 4, held: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet(tt.want)
			spec := tt.spec()
			spec.Facts.Pending = expectations.Expired
			spec.Facts.Names = func(string) string { t.Error("no name is needed"); return "" }
			relabelled := newWorker(rs, "relabelled", 1, func(w *worker) { w.Labels = nil })
			plan, err := replicas.Manage(append(tt.children(), relabelled), spec)
			require.NoError(t, err)
			assert.Equal(t, replicas.Blocked{Reason: tt.blocked}, plan.Blocked)
			assert.True(t, plan.Scale.IsZero(), plan.Scale)
			assert.Len(t, plan.Claims.Release, 1, "claims go on: their patches tell an old view themselves")
			scale, err := replicas.ScaleTo(tt.children(), spec)
			require.NoError(t, err)
			assert.Equal(t, plan.Scale, scale)
		})
	}
}

func TestAPlanSaysWhatIsKept(t *testing.T) {
	t.Parallel()
	s := step{have: 2, must: 1, want: 3}
	plan, err := replicas.Manage(s.children(), s.spec())
	require.NoError(t, err)
	assert.Equal(t, "create 1; 1 kept while others are missing or unavailable", plan.String())
	text, err := json.Marshal(plan.Scale)
	require.NoError(t, err)
	assert.JSONEq(t, `{"create":1,"kept":1,"outdated":1}`, string(text))
}

// For any number of wanted pods, the plan deletes the first pods in the order of Explain. For the last of the
// deleted pods, the plan and Explain give the same reason.
func TestExplainIsTheOrderOfEveryPlan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rs := replicaSet(0)
		spec := specOf(t, rs)
		crowd := podtest.Fleet(20, 5, seed+1000)
		spec.Facts.Related = func() []*corev1.Pod { return crowd }
		pods := fleet(rs, 40, seed)
		order, err := replicas.Explain(pods, spec)
		require.NoError(t, err)
		for n := 1; n <= len(order); n++ {
			spec.Replicas = int32(len(order) - n)
			scale, err := replicas.ScaleTo(pods, spec)
			require.NoError(t, err)
			require.Len(t, scale.Delete, n)
			for i, v := range scale.Delete {
				require.Same(t, order[i].Object, v.Object, "seed %d: place %d of %d", seed, i, n)
			}
			require.Equal(t, order[n-1], scale.Delete[n-1].Victim, "seed %d", seed)
		}
	}
}

func TestExplainGoesByTheRules(t *testing.T) {
	t.Parallel()
	spec, rs := workerSpec(3), replicaSet(3)
	spec.Rules.MustStay = func(w *worker) bool { return w.Name == "old" }
	spec.Rules.Order = podrank.Must(podrank.NewOrder(podrank.Oldest[*worker]()))
	workers := []*worker{newWorker(rs, "young", 1), newWorker(rs, "old", 9), newWorker(rs, "middle", 5)}
	order, err := replicas.Explain(workers, spec)
	require.NoError(t, err)
	var names []string
	for _, v := range order {
		names = append(names, v.Object.Name+" "+v.Criterion)
	}
	assert.Equal(t, []string{"middle oldest", "young must-stay", "old must-stay"}, names)

	order, err = replicas.Explain(nil, spec)
	require.NoError(t, err)
	assert.Nil(t, order)
}

func TestExplainRefusesWhatScaleToDoes(t *testing.T) {
	t.Parallel()
	spec, w := workerSpec(3), newWorker(replicaSet(3), "a", 1)
	_, err := replicas.Explain([]*worker{w, w}, spec)
	require.EqualError(t, err, `replicas: ReplicaSet "default/web": child "default/a" (uid-a) is listed twice`)
	spec.Replicas = -1
	_, err = replicas.Explain([]*worker{w}, spec)
	requireRefused(t, err, "InvalidReplicas")
}
