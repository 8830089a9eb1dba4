// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// isOver reports whether a worker has the annotation that marks it as ended.
func isOver(w *worker) bool { return w.Annotations["over"] != "" }

func over(w *worker) { w.Annotations = map[string]string{"over": "yes"} }

func goes(w *worker) { w.DeletionTimestamp = &metav1.Time{Time: podtest.Now} }

// discarding returns the spec of n workers. Workers that have ended are discarded.
func discarding(n int32) replicas.Spec[*worker] {
	spec := workerSpec(n)
	spec.Rules.Discard = isOver
	return spec
}

func namesOf(deletions []replicas.Deletion[*worker]) []string {
	var names []string
	for _, d := range deletions {
		names = append(names, d.Object.Name)
	}
	return names
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	rs := replicaSet(2)
	a, b, c := newWorker(rs, "a", 1), newWorker(rs, "b", 2), newWorker(rs, "c", 3)
	over2, over1 := newWorker(rs, "over-2", 1, over), newWorker(rs, "over-1", 2, over)
	orphan := newWorker(rs, "orphan", 1, over, func(w *worker) { w.OwnerReferences = nil })
	relabelled := newWorker(rs, "relabelled", 1, over, func(w *worker) { w.Labels = nil })
	elsewhere := newWorker(rs, "elsewhere", 1, over, func(w *worker) { w.Namespace = "other" })
	none := 0
	for name, tt := range map[string]struct {
		have             []*worker
		change           func(*replicas.Spec[*worker])
		create, deferred int
		remove, discard  []string
	}{
		"is in the plan that replaces it":          {have: []*worker{a, over1}, create: 1, discard: []string{"over-1"}},
		"is in the plan that deletes others":       {have: []*worker{a, b, c, over1}, remove: []string{"a"}, discard: []string{"over-1"}},
		"is by name":                               {have: []*worker{over2, a, b, over1}, discard: []string{"over-1", "over-2"}},
		"happens once":                             {have: []*worker{a, b, newWorker(rs, "over-3", 1, over, goes)}},
		"is for the owner's alone":                 {have: []*worker{a, b, orphan}},
		"is for those that the selector matches":   {have: []*worker{a, b, relabelled}},
		"is for those in the owner's namespace":    {have: []*worker{a, b, elsewhere}},
		"needs room in the burst, and shares none": {have: []*worker{over1, over2}, change: func(s *replicas.Spec[*worker]) { s.BurstReplicas = 1 }, create: 1, deferred: 2, discard: []string{"over-1"}},
		"needs no room in the budget":              {have: []*worker{a, b, c, over1}, change: func(s *replicas.Spec[*worker]) { s.MaxDeletions = &none }, deferred: 1, discard: []string{"over-1"}},
		"beats Active": {have: []*worker{a, over1}, change: func(s *replicas.Spec[*worker]) {
			s.Rules.Active = func(*worker) bool { return true }
		}, create: 1, discard: []string{"over-1"}},
		"waits in a pause":          {have: []*worker{a, over1}, change: func(s *replicas.Spec[*worker]) { s.Paused = true }},
		"waits for a view to trust": {have: []*worker{a, b, over1}, change: func(s *replicas.Spec[*worker]) { s.Facts.Pending = expectations.Expired }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := discarding(2)
			if tt.change != nil {
				tt.change(&spec)
			}
			plan, err := replicas.Manage(tt.have, spec)
			require.NoError(t, err)
			assert.Equal(t, tt.create, plan.Scale.Create)
			assert.Equal(t, tt.deferred, plan.Scale.Deferred)
			assert.Equal(t, tt.remove, namesOf(plan.Scale.Delete))
			assert.Equal(t, tt.discard, namesOf(plan.Scale.Discard))
			assert.Empty(t, plan.Claims.Adopt)
			assert.Equal(t, tt.create == 0 && tt.remove == nil && tt.discard == nil, plan.IsZero())
		})
	}
	t.Run("is for all that are passed to ScaleTo", func(t *testing.T) {
		t.Parallel()
		scale, err := replicas.ScaleTo([]*worker{over2, a, orphan, elsewhere}, discarding(1))
		require.NoError(t, err)
		assert.Equal(t, []string{"orphan", "over-2"}, namesOf(scale.Discard), "those in the owner's namespace")
		assert.Zero(t, scale.Create)
	})
	t.Run("leaves no name to a new child before it is done", func(t *testing.T) {
		t.Parallel()
		spec, next := discarding(1), []string{"over-1", "free"}
		spec.Facts.Names = func(string) (name string) {
			name, next = next[0], next[1:]
			return name
		}
		plan, err := replicas.Manage([]*worker{over1}, spec)
		require.NoError(t, err)
		assert.Equal(t, []string{"free"}, plan.Scale.Names)
	})
	t.Run("has the preconditions of a deletion", func(t *testing.T) {
		t.Parallel()
		spec := discarding(0)
		spec.Rules.Ready = func(w *worker) bool { return w.Name == "over-1" }
		plan, err := replicas.Manage([]*worker{over1, over2}, spec)
		require.NoError(t, err)
		assert.Equal(t, &metav1.Preconditions{UID: &over1.UID, ResourceVersion: &over1.ResourceVersion}, plan.Scale.Discard[0].Options.Preconditions)
		assert.Equal(t, &metav1.Preconditions{UID: &over2.UID, ResourceVersion: &over2.ResourceVersion}, plan.Scale.Discard[1].Options.Preconditions)
		assert.Equal(t, "discarded", plan.Scale.Discard[0].Explain())
	})
	t.Run("is told", func(t *testing.T) {
		t.Parallel()
		plan, err := replicas.Manage([]*worker{over1}, discarding(1))
		require.NoError(t, err)
		assert.Equal(t, "create 1; discard 1: default/over-1", plan.String())
		text, err := plan.MarshalJSON()
		require.NoError(t, err)
		assert.JSONEq(t, `{"scale": {"create": 1, "discard": [{"namespace": "default", "name": "over-1", "uid": "uid-over-1"}]}}`, string(text))
	})
}

func TestDiscardRefuses(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	for name, tt := range map[string]struct {
		have   []*worker
		change func(*replicas.Spec[*worker])
		want   string
	}{
		"a child that is there twice": {
			[]*worker{newWorker(rs, "a", 1, over), newWorker(rs, "a", 1)}, func(*replicas.Spec[*worker]) {}, `child "default/a" (uid-a) is listed twice`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := discarding(1)
			tt.change(&spec)
			plan, err := replicas.Manage(tt.have, spec)
			require.EqualError(t, err, `replicas: ReplicaSet "default/web": `+tt.want)
			assert.Zero(t, plan)
			scale, err := replicas.ScaleTo(tt.have, spec)
			require.EqualError(t, err, `replicas: ReplicaSet "default/web": `+tt.want)
			assert.Zero(t, scale)
		})
	}
}

// A game server has crashed while players are on it. It is replaced at once, and is cleaned up when they have left.
func TestAChildThatMustStayIsDiscardedLater(t *testing.T) {
	t.Parallel()
	crashed, crashedToo := newWorker(replicaSet(1), "a", 1, over), newWorker(replicaSet(1), "b", 1, over)
	spec := discarding(2)
	spec.Rules.MustStay = func(w *worker) bool { return w.Name == "a" }
	plan, err := replicas.Manage([]*worker{crashed, crashedToo}, spec)
	require.NoError(t, err)
	assert.Equal(t, "create 2; discard 1: default/b; 1 kept by MustStay", plan.Scale.String())
	spec.Rules.MustStay = nil
	plan, err = replicas.Manage([]*worker{crashed, crashedToo}, spec)
	require.NoError(t, err)
	assert.Equal(t, "create 2; discard 2: default/a, default/b", plan.Scale.String())
}

// Children that have ended do not affect Scale.Create and Scale.Delete. If the list omits the ended children, the
// plan creates the same number of children and deletes the same children.
func TestDiscardAgreesWithItsTwin(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		rs := replicaSet(int32(r.IntN(8)))
		var all, live []*worker
		var ended []string
		for i := range r.IntN(12) {
			w := newWorker(rs, fmt.Sprintf("w-%02d", i), r.IntN(5))
			switch r.IntN(4) {
			case 0:
				over(w)
				ended = append(ended, w.Name)
			case 1:
				over(w)
				goes(w)
			default:
				live = append(live, w)
			}
			all = append(all, w)
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		spec := discarding(*rs.Spec.Replicas)
		spec.BurstReplicas = 1 + r.IntN(6)
		got, err := replicas.Manage(all, spec)
		require.NoError(t, err)
		want, err := replicas.Manage(live, spec)
		require.NoError(t, err)
		now := ended[:min(len(ended), spec.BurstReplicas)]
		require.Equal(t, want.Scale.Create, got.Scale.Create)
		require.ElementsMatch(t, namesOf(want.Scale.Delete), namesOf(got.Scale.Delete))
		require.True(t, slices.Equal(now, namesOf(got.Scale.Discard)), "seed %d: %v, %v", seed, now, got.Scale)
		require.Equal(t, want.Scale.Deferred+len(ended)-len(now), got.Scale.Deferred)
	}
}
