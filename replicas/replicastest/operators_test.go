// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/failure"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// Reports of operators, played on pools of workers.

type (
	workers     = replicas.Spec[*worker]
	workerScale = replicas.Scale[*worker]
)

// workersOf returns the Kind of pools whose spec is changed.
func workersOf(change func(spec *workers)) controller.Kind[*pool, *worker] {
	kind := pools()
	spec := kind.Spec
	kind.Spec = func(p *pool) (workers, error) {
		s, err := spec(p)
		change(&s)
		return s, err
	}
	return kind
}

// openWorkshop returns a workshop of a Kind, whose pool has become what it wants.
func openWorkshop(t *testing.T, kind controller.Kind[*pool, *worker], n int32, ready bool) *workshop {
	t.Helper()
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1})
	require.NoError(t, err)
	if ready {
		cluster.Ready = func(w *worker) { w.Status.Ready = true }
	}
	s := &workshop{Cluster: cluster, controller: cluster.NewController()}
	s.world = &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, s.controller}}
	p := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	p.Spec.Replicas = n
	_, err = cluster.CreateOwner(t.Context(), p)
	require.NoError(t, err)
	s.world.Run(time.Hour)
	return s
}

func (s *workshop) want(t *testing.T, n int32) {
	t.Helper()
	_, err := s.EditOwner(t.Context(), namespace, "p", func(p *pool) { p.Spec.Replicas = n })
	require.NoError(t, err)
}

func (s *workshop) edit(t *testing.T, name string, change func(w *worker)) {
	t.Helper()
	_, err := s.EditChild(t.Context(), namespace, name, change)
	require.NoError(t, err)
}

func (s *workshop) names() (names []string) {
	for _, w := range s.Children(namespace) {
		if w.DeletionTimestamp == nil {
			names = append(names, w.Name)
		}
	}
	return names
}

// actions-runner-controller 4000: a runner gets a job while the cache does not show that yet,
// and the pool is scaled down.
func TestARunnerThatGetsAJobStays(t *testing.T) {
	t.Parallel()
	isBusy := func(w *worker) bool { return w.Annotations["busy"] != "" }
	for name, tt := range map[string]struct {
		ruled, ready bool
	}{"if nothing is ready by rule": {}, "if it is not ready yet": {ruled: true}, "if it is ready": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openWorkshop(t, workersOf(func(spec *workers) {
				spec.Rules.MustStay = isBusy
				if !tt.ruled {
					spec.Rules.Ready = nil
				}
			}), 3, tt.ready)
			require.Len(t, s.names(), 3)
			s.controller.View.ChildWatch.Lag = 3 * time.Second
			job := s.names()[1]
			s.edit(t, job, func(w *worker) { w.Annotations = map[string]string{"busy": "1"} })
			s.want(t, 0)
			s.world.Run(time.Hour)
			assert.Equal(t, []string{job}, s.names())
		})
	}
}

// agent-sandbox 418: another controller takes a child over while the cache does not show that
// yet, and the pool is scaled down.
func TestAChildThatWasTakenOverStays(t *testing.T) {
	t.Parallel()
	for _, ready := range []bool{false, true} {
		s := openWorkshop(t, pools(), 3, ready)
		s.controller.View.ChildWatch.Lag = 3 * time.Second
		taken, yes := s.names()[1], true
		s.edit(t, taken, func(w *worker) {
			w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Claim", Name: "c", UID: "claim", Controller: &yes}}
		})
		s.want(t, 0)
		s.world.Run(time.Hour)
		assert.Equal(t, []string{taken}, s.names(), "ready: %v", ready)
	}
}

// membersWith returns a Kind whose author keeps a claim for each member: Prepare makes the
// claims of new members, and deletes those of the members that go.
func membersWith(claims sets.Set[string]) controller.Kind[*pool, *worker] {
	kind := workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") })
	kind.Prepare = func(_ context.Context, _ *pool, step *controller.Step[*worker]) error {
		claims.Insert(step.Create...)
		for _, d := range step.Delete {
			claims.Delete(d.Object.Name)
		}
		return nil
	}
	return kind
}

// cloudnative-pg 10905: the cache has an old owner that wants fewer members. None goes, and
// none loses its claim.
func TestAnOldOwnerCostsNoMemberItsClaim(t *testing.T) {
	t.Parallel()
	claims := sets.New[string]()
	s := openWorkshop(t, membersWith(claims), 5, true)
	s.controller.View.OwnerWatch.Lag = 2 * time.Second
	s.want(t, 3)
	s.world.Run(time.Second)
	s.want(t, 5)
	s.world.Run(time.Hour)
	assert.Len(t, s.names(), 5)
	assert.True(t, claims.HasAll(s.names()...))
}

// cloudnative-pg 10985: the claim of p-0 is being deleted.
func TestAStepThatLeavesOutANameGetsTheOthers(t *testing.T) {
	t.Parallel()
	isStuck := true
	kind := workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") })
	kind.Prepare = func(_ context.Context, _ *pool, step *controller.Step[*worker]) error {
		step.Create = slices.DeleteFunc(step.Create, func(name string) bool { return isStuck && name == "p-0" })
		step.Again = 10 * time.Second
		return nil
	}
	s := openWorkshop(t, kind, 3, true)
	assert.Equal(t, []string{"p-1", "p-2"}, s.names())
	isStuck = false
	s.world.Run(time.Minute)
	assert.Equal(t, []string{"p-0", "p-1", "p-2"}, s.names())
}

// A quota that is full keeps a slot from being filled. When it has room, all ends well.
func TestSlotsThatAreGivenUpWhileAnotherIsMissing(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") }), 5, true)
	s.Deny("create", failure.Forbidden.Of)
	_, err := s.DeleteChild(t.Context(), namespace, "p-1", metav1.DeleteOptions{})
	require.NoError(t, err)
	s.want(t, 3)
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"p-0", "p-2", "p-3"}, s.names(), "p-3 stands in for p-1")
	s.Webhook = nil
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"p-0", "p-1", "p-2"}, s.names())
}

// The user scales down under a full quota, with a slot missing, and it ends.
func TestScaleDownUnderAFullQuota(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") }), 5, true)
	s.SetQuota(namespace, 4)
	_, err := s.DeleteChild(t.Context(), namespace, "p-1", metav1.DeleteOptions{})
	require.NoError(t, err)
	s.world.Run(time.Hour)
	require.Equal(t, []string{"p-0", "p-2", "p-3", "p-4"}, s.names(), "the quota is full")
	s.want(t, 3)
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"p-0", "p-1", "p-2"}, s.names())
}

func TestAChildThatMustGoWhileAnotherIsMissing(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, workersOf(func(spec *workers) {
		spec.Rules.MustGo = func(w *worker) bool { return w.Spec.Image == "old" }
	}), 3, true)
	s.Deny("create", failure.Forbidden.Of)
	names := s.names()
	_, err := s.DeleteChild(t.Context(), namespace, names[0], metav1.DeleteOptions{})
	require.NoError(t, err)
	s.edit(t, names[1], func(w *worker) { w.Spec.Image = "old" })
	s.world.Run(time.Hour)
	assert.Equal(t, names[1:], s.names(), "the missing one cannot be created")
	s.Webhook = nil
	s.world.Run(time.Hour)
	assert.Len(t, s.names(), 3)
	assert.NotContains(t, s.names(), names[1])
}
