// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

const drain = "example.com/drain"

// deletedOwner returns the ReplicaSet default/web while it is being deleted.
func deletedOwner(finalizers ...string) *appsv1.ReplicaSet {
	rs := replicaSet(2)
	rs.DeletionTimestamp, rs.Finalizers = &metav1.Time{Time: podtest.Now}, finalizers
	return rs
}

// The spec of a deleted owner may be wrong or paused in any way that only new or replaced children care about. Its
// children go by the rules of Finalizer alone.
func TestADeletedOwnerNeedsNoNewChildren(t *testing.T) {
	t.Parallel()
	invalid, none, many := intstr.FromString("x"), intstr.FromInt32(0), intstr.FromInt32(101)
	wrong := map[string]func(s *replicas.SpecOfPods){
		"Paused":                       func(s *replicas.SpecOfPods) { s.Paused = true },
		"negative Replicas":            func(s *replicas.SpecOfPods) { s.Replicas = -1 },
		"a BaseName that is illegal":   func(s *replicas.SpecOfPods) { s.BaseName = "Pool_1" },
		"Names that are illegal":       func(s *replicas.SpecOfPods) { s.Facts.Names = func(string) string { return "" } },
		"Slots without names":          func(s *replicas.SpecOfPods) { s.Slots = func(int) string { return "" } },
		"Slots with one name":          func(s *replicas.SpecOfPods) { s.Slots = func(int) string { return "web-0" } },
		"more Slots than are possible": func(s *replicas.SpecOfPods) { s.Slots, s.Replicas = replicas.Ordinals("web"), replicas.MaxSlots+1 },
		"no Template":                  func(s *replicas.SpecOfPods) { s.Template = nil },
		"a Template without labels":    func(s *replicas.SpecOfPods) { s.Template = &corev1.PodTemplateSpec{} },
		"New that fails": func(s *replicas.SpecOfPods) {
			s.New = func(string) (*corev1.Pod, error) { return nil, errors.New("no") }
		},
		"negative MinReadySeconds":    func(s *replicas.SpecOfPods) { s.MinReadySeconds = -1 },
		"MaxUnavailable that is text": func(s *replicas.SpecOfPods) { s.MaxUnavailable = &invalid },
		"MaxUnavailable above 100%":   func(s *replicas.SpecOfPods) { p := intstr.FromString("101%"); s.MaxUnavailable = &p },
		"a rollout that never replaces": func(s *replicas.SpecOfPods) {
			s.MaxUnavailable, s.Rules.MustGo = &none, func(*corev1.Pod) bool { return true }
		},
		"MaxSurge with Slots":             func(s *replicas.SpecOfPods) { s.Slots, s.MaxSurge = replicas.Ordinals("web"), &many },
		"an undecided orphan that is nil": func(s *replicas.SpecOfPods) { s.Facts.Undecided = []*corev1.Pod{nil} },
		"an undecided orphan":             func(s *replicas.SpecOfPods) { s.Facts.Undecided = []*corev1.Pod{podtest.Pod("orphan")} },
		"a creation in flight":            func(s *replicas.SpecOfPods) { s.Facts.CreationsInFlight = []string{"web-x"} },
		"negative ReadyWithin":            func(s *replicas.SpecOfPods) { s.Rules.ReadyWithin = -1 },
		"ReadyWithin that is too short":   func(s *replicas.SpecOfPods) { s.Rules.ReadyWithin, s.MinReadySeconds = time.Second, 5 },
	}
	for name, change := range wrong {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, err := replicas.ReplicaSetSpec(replicaSet(2))
			require.NoError(t, err)
			change(&spec)
			spec.Facts.Now, spec.Finalizer = podtest.Now, drain
			pods := []*corev1.Pod{podtest.Pod("web-0", owned(replicaSet(3))), podtest.Pod("web-1", owned(replicaSet(3)))}

			spec.Owner = deletedOwner(drain)
			plan, err := replicas.Manage(pods, spec)
			require.NoError(t, err)
			assert.Zero(t, plan.Blocked)
			assert.Len(t, plan.Scale.Delete, 2)
			assert.Zero(t, plan.Scale.Create)
			for _, v := range plan.Scale.Delete {
				assert.False(t, v.Replaced, "nothing takes the place of %s", v.Object.Name)
			}
			scale, err := replicas.ScaleTo(pods, spec)
			require.NoError(t, err)
			assert.Len(t, scale.Delete, 2)
			room, err := replicas.RoomOf(pods, spec)
			require.NoError(t, err)
			assert.Len(t, room.Clamp(scale).Delete, 2)
			assert.Zero(t, room.Create)

			for what, owner := range map[string]*appsv1.ReplicaSet{
				"another finalizer keeps it": deletedOwner("example.com/other"),
				"its children are orphaned":  deletedOwner(drain, metav1.FinalizerOrphanDependents),
			} {
				spec.Owner = owner
				plan, err = replicas.Manage(pods, spec)
				require.NoError(t, err, what)
				assert.Equal(t, replicas.Blocked{Reason: replicas.OwnerDeleted}, plan.Blocked, what)
				room, err = replicas.RoomOf(pods, spec)
				require.NoError(t, err, what)
				assert.Zero(t, room.Create+room.Delete, what)
			}
		})
	}
}

// What deletions need still counts for a deleted owner.
func TestADeletedOwnerKeepsTheLimitsAndTheOrderOfDeletions(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{podtest.Pod("web-0", owned(replicaSet(3))), podtest.Pod("web-1", owned(replicaSet(3))), podtest.Pod("web-2", owned(replicaSet(3)))}
	one, none := 1, 0
	for name, tt := range map[string]struct {
		change func(s *replicas.SpecOfPods)
		want   []string
	}{
		"the highest slot goes first": {func(s *replicas.SpecOfPods) { s.Slots = replicas.Ordinals("web") }, []string{"web-2", "web-1", "web-0"}},
		"BurstReplicas":               {func(s *replicas.SpecOfPods) { s.Slots, s.BurstReplicas = replicas.Ordinals("web"), 2 }, []string{"web-2", "web-1"}},
		"MaxDeletions":                {func(s *replicas.SpecOfPods) { s.Slots, s.MaxDeletions = replicas.Ordinals("web"), &one }, []string{"web-2"}},
		"MaxDeletions of 0":           {func(s *replicas.SpecOfPods) { s.MaxDeletions = &none }, nil},
		"MustStay":                    {func(s *replicas.SpecOfPods) { s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Name != "web-1" } }, []string{"web-1"}},
		"what must go goes first": {func(s *replicas.SpecOfPods) {
			s.BurstReplicas, s.Rules.MustGo = 1, func(p *corev1.Pod) bool { return p.Name == "web-1" }
		}, []string{"web-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, err := replicas.ReplicaSetSpec(replicaSet(3))
			require.NoError(t, err)
			spec.Owner, spec.Facts.Now, spec.Finalizer = deletedOwner(drain), podtest.Now, drain
			tt.change(&spec)
			plan, err := replicas.Manage(pods, spec)
			require.NoError(t, err)
			var got []string
			for _, v := range plan.Scale.Delete {
				got = append(got, v.Object.Name)
			}
			assert.Equal(t, tt.want, got)
		})
	}
	t.Run("a selector that matches everything", func(t *testing.T) {
		t.Parallel()
		spec, err := replicas.ReplicaSetSpec(replicaSet(3))
		require.NoError(t, err)
		spec.Owner, spec.Facts.Now, spec.Finalizer, spec.Selector = deletedOwner(drain), podtest.Now, drain, labels.Everything()
		_, err = replicas.Manage(pods, spec)
		require.ErrorContains(t, err, "selector is empty")
	})
}

func TestPaused(t *testing.T) {
	t.Parallel()
	rs := replicaSet(2)
	orphan := newWorker(rs, "orphan", 1, func(w *worker) { w.OwnerReferences = nil })
	for name, tt := range map[string]struct {
		replicas int32
		pending  expectations.State
	}{
		"creates nothing":                       {5, expectations.Satisfied},
		"deletes nothing":                       {0, expectations.Satisfied},
		"asks for no list if the view is stale": {5, expectations.Expired},
		"does not wait for expectations":        {5, expectations.Waiting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(tt.replicas)
			spec.Paused, spec.Facts.Pending = true, tt.pending
			plan, err := replicas.Manage([]*worker{newWorker(rs, "a", 1), orphan}, spec)
			require.NoError(t, err)
			assert.True(t, plan.Scale.IsZero())
			assert.Equal(t, replicas.Blocked{Reason: replicas.Paused}, plan.Blocked)
			assert.Equal(t, []*worker{orphan}, plan.Claims.Adopt, "claims go on")

			spec.Paused, spec.Facts.Pending = false, expectations.Satisfied
			plan, err = replicas.Manage([]*worker{newWorker(rs, "a", 1), orphan}, spec)
			require.NoError(t, err)
			assert.False(t, plan.Scale.IsZero())
		})
	}
}

func TestBaseName(t *testing.T) {
	t.Parallel()
	prefix := ""
	spec := workerSpec(1)
	spec.BaseName = "pool"
	spec.Facts.Names = func(p string) string {
		prefix = p
		return p + "x"
	}
	scale, err := replicas.ScaleTo[*worker](nil, spec)
	require.NoError(t, err)
	child, err := scale.New(0)
	require.NoError(t, err)
	assert.Equal(t, "pool-", prefix)
	assert.Equal(t, []string{"pool-x"}, scale.Names)
	assert.Equal(t, "pool-", child.GenerateName)

	t.Run("of pods from a template", func(t *testing.T) {
		t.Parallel()
		spec, err := replicas.ReplicaSetSpec(replicaSet(1))
		require.NoError(t, err)
		spec.BaseName, spec.Facts.Now = "pool", workerSpec(1).Facts.Now
		scale, err := replicas.ScaleTo(nil, spec)
		require.NoError(t, err)
		assert.Equal(t, "pool-", newPod(t, scale).GenerateName)
	})
	t.Run("that no name can begin with is refused", func(t *testing.T) {
		t.Parallel()
		spec := workerSpec(1)
		spec.BaseName = "Pool_1"
		_, err := replicas.ScaleTo[*worker](nil, spec)
		require.ErrorContains(t, err, `"default/web"`)
		require.ErrorContains(t, err, `base name "Pool_1"`)
	})
}
