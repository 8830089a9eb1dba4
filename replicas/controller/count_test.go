// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

func TestPodsCountByTheRulesOfTheKind(t *testing.T) {
	t.Parallel()
	is := func(name string) func(*corev1.Pod) bool { return func(p *corev1.Pod) bool { return p.Name == name } }
	for name, tt := range map[string]struct {
		change func(*replicas.SpecOfPods)
		want   counts
	}{
		"T3 T4 if it has none, as those of a ReplicaSet do": {func(*replicas.SpecOfPods) {}, counts{4, 3, 3, 2, 0}},
		"ready":     {func(s *replicas.SpecOfPods) { s.Rules.Ready = is("strange") }, counts{4, 3, 1, 1, 0}},
		"active":    {func(s *replicas.SpecOfPods) { s.Rules.Active, s.Replicas = is("fresh"), 1 }, counts{1, 1, 1, 0, 0}},
		"discarded": {func(s *replicas.SpecOfPods) { s.Rules.Discard, s.Replicas = is("strange"), 3 }, counts{3, 3, 2, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := controller.ReplicaSets()
			kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				s, err := replicas.ReplicaSetSpec(rs)
				tt.change(&s)
				return s, err
			}
			rs := replicaSet(4)
			rs.Spec.MinReadySeconds = 30
			rs.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
			r := rigOf(kind, rs)
			front := func(p *corev1.Pod) { p.Labels["tier"] = "front" }
			long, short := podtest.ReadySince(podtest.Now.Add(-time.Minute)), podtest.ReadySince(podtest.Now.Add(-time.Second))
			assert.Equal(t, &tt.want, written(t, r,
				podtest.Pod("long", owned(rs), front, long), podtest.Pod("fresh", owned(rs), front, short),
				podtest.Pod("waits", owned(rs), front, podtest.NotReady), podtest.Pod("strange", owned(rs), long)))
		})
	}
}

// counts holds the numbers of replicas, fully labeled, ready, available and terminating pods, in this order.
type counts [5]int32

func countsOf(s appsv1.ReplicaSetStatus) counts {
	return counts{s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, podtest.Terminating(s)}
}

// written makes a pass with these pods in the cache, and returns the counts in the status that the pass wrote. If
// the pass wrote no status, written returns nil. After a write, the cache shows the owner with the new status.
func written(t *testing.T, r *podRig, pods ...*corev1.Pod) *counts {
	t.Helper()
	before := len(r.statuses)
	_, _ = r.pass(t, 0, pods...)
	if len(r.statuses) == before {
		return nil
	}
	require.Len(t, r.statuses, before+1)
	r.owner = r.statuses[before].DeepCopy()
	c := countsOf(r.owner.Status)
	return &c
}

func deleting(pods []*corev1.Pod) []*corev1.Pod {
	pods = clones(pods)
	for _, p := range pods {
		podtest.Deleting(p)
	}
	return pods
}

// knowing returns a rig whose cache returns a version for the pods. The cache shows all changes up to this
// version.
func knowing(want int32) *podRig {
	r := newRig(want)
	r.childrenVersion = "9"
	return r
}

// The file testdata/counts.txt contains more cases.
func TestStatusCountsOwnCreations(t *testing.T) {
	t.Parallel()
	t.Run("T1 T3 T4 labels and readiness are those of the answer", func(t *testing.T) {
		t.Parallel()
		r := knowing(2)
		r.owner.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
		first := true
		r.mutate = func(p *corev1.Pod) {
			if first {
				delete(p.Labels, "tier")
				podtest.ReadySince(podtest.Now)(p)
			}
			first = false
		}
		assert.Equal(t, &counts{2, 1, 1, 1, 0}, written(t, r))
	})
}

func TestStatusCountsOwnDeletions(t *testing.T) {
	t.Parallel()
	t.Run("T1 T8 what the pass deleted is terminating at once, in every pass until the cache shows it", func(t *testing.T) {
		t.Parallel()
		r := knowing(2)
		pods := podsOf(r.owner, 5)
		assert.Equal(t, &counts{2, 2, 2, 2, 3}, written(t, r, pods...))
		victims := r.last.Deleted
		for range 3 {
			assert.Nil(t, written(t, r, pods...), "the cache shows nothing yet")
		}
		left := podsOf(r.owner, 5)[3:]
		assert.Equal(t, names(pods[:3]), names(victims))
		for i, c := range deleting(victims) {
			require.NoError(t, r.start().ChildUpdated(victims[i], c))
			assert.Nil(t, written(t, r, append(deleting(victims)[:i+1], pods[i+1:]...)...), "it shows one after the other")
		}
		assert.Equal(t, &counts{2, 2, 2, 2, 0}, written(t, r, left...), "they are gone")
	})
	t.Run("T1 a pod counts again if a live list still has it after its deletion", func(t *testing.T) {
		t.Parallel()
		r := knowing(2)
		pods := podsOf(r.owner, 2)
		r.known().Deleted("uid-web-000", r.now)
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		pass, err := r.pass(t, 400, pods...)
		require.NoError(t, err)
		require.Equal(t, 1, telemetry.LiveLists(pass.Calls))
		assert.Equal(t, counts{2, 2, 2, 2, 0}, countsOf(r.statuses[0].Status))
	})
	t.Run("T1 T8 a pod that gets no time to end in is gone at once, unless a finalizer keeps it", func(t *testing.T) {
		t.Parallel()
		r := knowing(0)
		goes, stays := podtest.Pod("a", owned(r.owner)), podtest.Pod("b", owned(r.owner))
		goes.Spec.TerminationGracePeriodSeconds, stays.Spec.TerminationGracePeriodSeconds = new(int64), new(int64)
		stays.Finalizers = []string{"example.com/stay"}
		assert.Equal(t, &counts{0, 0, 0, 0, 1}, written(t, r, goes, stays))
	})
	t.Run("T1 T8 a pod without a node is not terminating while the cache shows that it goes", func(t *testing.T) {
		t.Parallel()
		r := knowing(1)
		pods := []*corev1.Pod{
			podtest.Pod("a", owned(r.owner), podtest.On("")), podtest.Pod("b", owned(r.owner), podtest.On("")),
			podtest.Pod("c", owned(r.owner)),
		}
		assert.Equal(t, &counts{1, 1, 1, 1, 0}, written(t, r, pods...))
		going := deleting(pods[:2])
		for _, p := range going {
			p.DeletionGracePeriodSeconds = new(int64)
		}
		assert.Nil(t, written(t, r, going[0], pods[1], pods[2]))
		assert.Nil(t, written(t, r, going[0], going[1], pods[2]))
		assert.Nil(t, written(t, r, pods[2]))
		going[0].Finalizers = []string{"example.com/stay"}
		assert.Equal(t, &counts{1, 1, 1, 1, 1}, written(t, r, going[0], pods[2]), "a finalizer came in time")
	})
	t.Run("T1 M1 no pass is asked for because of a pod that was deleted", func(t *testing.T) {
		t.Parallel()
		r := knowing(0)
		r.owner.Spec.MinReadySeconds = 3610
		pass, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner)))
		require.NoError(t, err)
		assert.Greater(t, pass.RequeueAfter.Seconds(), 60.0, "it would be available in ten seconds")
	})
}

func TestStatusCountsWhatTheKindCallsAReplica(t *testing.T) {
	t.Parallel()
	t.Run("T1 T8 if pods being deleted are replicas, own deletions change no count", func(t *testing.T) {
		t.Parallel()
		r := knowing(2)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			s.Rules.Active = func(*corev1.Pod) bool { return true }
			return s, err
		}
		pods := podsOf(r.owner, 3)
		assert.Equal(t, &counts{3, 3, 3, 3, 0}, written(t, r, pods...))
		require.Len(t, r.last.Deleted, 1)
		assert.Nil(t, written(t, r, pods...), "the cache shows nothing yet")
		assert.Nil(t, written(t, r, append(deleting(pods[:1]), pods[1:]...)...), "nor does it change when it does")
	})
}
