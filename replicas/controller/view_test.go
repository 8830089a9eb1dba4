// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

func TestRelated(t *testing.T) {
	t.Parallel()
	t.Run("L3 related pods are asked for only to delete, and rank", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		asked := 0
		r.related = func() ([]*corev1.Pod, error) {
			asked++
			return []*corev1.Pod{podtest.Pod("other", podtest.On("node-2"))}, nil
		}
		pods := podsOf(r.owner, 2)
		podtest.On("node-2")(pods[1])
		_, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Zero(t, asked)
		r.owner.Spec.Replicas = new(int32)
		*r.owner.Spec.Replicas = 1
		_, err = r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, 1, asked)
		assert.Equal(t, []string{"read owner", "delete web-001"}, r.calls)
	})
	t.Run("L4 W37 a failure costs the ranking, not the pass, and is told", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.related = func() ([]*corev1.Pod, error) {
			return []*corev1.Pod{podtest.Pod("half a list", podtest.On("node-2"))}, errors.New("no index")
		}
		pods := podsOf(r.owner, 2)
		podtest.On("node-2")(pods[1])
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-000"}, names(pass.Deleted), "half a list ranks nobody")
		require.EqualError(t, requireGate(t, pass.Gates, controller.RelatedFailed).Err, "no index")
		assert.Len(t, pass.Deleted, 1)
		assert.Contains(t, r.events, "Warning FailedRelatedPods Error listing related pods: no index")
	})
	t.Run("L4 a failure is told once while it lasts", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		failed := errors.New("no index")
		r.related = func() ([]*corev1.Pod, error) { return nil, failed }
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
		told := func(seconds int) int {
			pass, _ := r.pass(t, seconds, podsOf(r.owner, 2)...)
			if failed == nil {
				require.Empty(t, gatesOf(pass.Gates, controller.RelatedFailed))
			} else {
				require.Equal(t, failed, requireGate(t, pass.Gates, controller.RelatedFailed).Err)
			}
			return len(r.eventsOf("Warning FailedRelatedPods"))
		}
		assert.Equal(t, 1, told(0))
		assert.Zero(t, told(60))
		_, _ = r.pass(t, 70, podsOf(r.owner, 1)...) // this pass does not read the related pods
		assert.Equal(t, 1, told(120))
		failed = nil
		assert.Zero(t, told(180))
		failed = errors.New("no index")
		assert.Equal(t, 1, told(240))
	})
}

// selectorThatMayGo returns a function that removes the selector from the results of Kind.Spec.
func selectorThatMayGo(r *podRig) (drop func()) {
	spec, without := r.kind.Spec, false
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.Spec[*corev1.Pod], error) {
		s, err := spec(rs)
		if without {
			s.Selector = nil
		}
		return s, err
	}
	return func() { without = true }
}

func TestASelectorThatBecomesNil(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	dropSelector := selectorThatMayGo(r)
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(p.Name) }
	pods := podsOf(r.owner, 2)
	_, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	dropSelector()
	pass, err := r.pass(t, 1, pods...)
	require.NoError(t, err)
	requireRefused(t, pass.Err, replicas.InvalidSelector)
}

// A webhook has changed the labels of a new child, so this stray still has to be deleted. If the selector then
// becomes nil, the spec is refused.
func TestASelectorThatBecomesNilBesideAStray(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	dropSelector := selectorThatMayGo(r)
	r.mutate = func(p *corev1.Pod) { p.Labels = api }
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return conflict(p.Name) }
	r.get = func(name string) (*corev1.Pod, error) {
		return podtest.Pod(name, owned(r.owner), podtest.Labels(api)), nil
	}
	_, err := r.pass(t, 0)
	require.Error(t, err)
	dropSelector()
	pass, err := r.pass(t, 1)
	require.NoError(t, err)
	requireRefused(t, pass.Err, replicas.InvalidSelector)
}

// If the caller requests passes at regular intervals, it does not have to handle the events of children.
func TestExpectationsWithoutEvents(t *testing.T) {
	t.Parallel()
	two := func(t *testing.T) (*podRig, []*corev1.Pod) {
		t.Helper()
		r := newRig(2)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		require.Len(t, pass.Created, 2)
		*r.owner.Spec.Replicas = 3
		return r, pass.Created
	}
	t.Run("a pass settles what its view shows, and waits for the rest", func(t *testing.T) {
		t.Parallel()
		r, pods := two(t)
		pass, err := r.pass(t, 1, pods[0])
		require.NoError(t, err)
		assert.Empty(t, pass.Created)
		adds, _ := r.pending()
		assert.Equal(t, 1, adds)
		pass, err = r.pass(t, 2, pods[1])
		require.NoError(t, err)
		assert.Len(t, pass.Created, 2, "the first is gone again")
	})
	t.Run("a deletion is settled by a view in which the child is deleted or gone", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := podsOf(r.owner, 3)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		require.Equal(t, []string{"web-000", "web-001"}, names(pass.Deleted))
		podtest.Deleting(pods[0])
		_, err = r.pass(t, 1, pods...)
		require.NoError(t, err)
		_, dels := r.pending()
		assert.Equal(t, 1, dels)
		_, err = r.pass(t, 2, pods[2])
		require.NoError(t, err)
		_, dels = r.pending()
		assert.Zero(t, dels)
	})
	t.Run("a child that a list has shown and that the cache never had is not settled by that", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.newProcess = true
		pods := podsOf(r.owner, 3)
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		pass, err := r.pass(t, 0, pods[2])
		require.NoError(t, err)
		require.Empty(t, pass.Deleted, "one is wanted, and one is there")
		*r.owner.Spec.Replicas = 2 // the next pass lists the children live
		pass, err = r.pass(t, 1, pods[2])
		require.NoError(t, err)
		require.Equal(t, []string{"web-000"}, names(pass.Deleted))
		for i := range 3 {
			pass, err = r.pass(t, 2+i, pods[2])
			require.NoError(t, err)
			assert.Empty(t, pass.Deleted)
			_, dels := r.pending()
			assert.Equal(t, 1, dels)
		}
	})
}

// If a cache is filled again from a server that is behind, an event shows an older version of a child. The view is
// then old.
func TestACacheThatGoesBackIsOldThoughNothingIsKnown(t *testing.T) {
	t.Parallel()
	rig := newRig(10) // the cache does not return its version
	all := ready(rig.owner, 10)
	rig.live = func() ([]*corev1.Pod, error) { return all, nil }
	for second := range 3 {
		_, err := rig.pass(t, second, all...)
		require.NoError(t, err)
	}
	old := clone(all[0])
	old.ResourceVersion = "5"
	require.NoError(t, rig.start().ChildUpdated(all[0], old))
	for _, gone := range all[1:] {
		require.NoError(t, rig.start().ChildDeleted(gone))
	}
	pass, err := rig.pass(t, 60, old)
	require.NoError(t, err)
	assert.Empty(t, pass.Created)
	assert.Len(t, pass.Active, 10)
}

// In this test, the watch hangs, and the versions of the server are not numbers. A live list still shows which of
// the cached children are gone.
func TestWhatALiveListSaidCountsIfVersionsAreNoNumbers(t *testing.T) {
	t.Parallel()
	rig := newRig(3)
	all := ready(rig.owner, 5)
	for i := range all {
		all[i].ResourceVersion = "v" + strconv.Itoa(i)
	}
	rig.live = func() ([]*corev1.Pod, error) { return all[2:], nil }
	rig.start().NewTerm(t.Context(), "")
	for second := range 4 {
		pass, err := rig.pass(t, 20*second, all...)
		require.NoError(t, err)
		assert.Empty(t, pass.Deleted, "three of three are there")
		assert.Len(t, pass.Active, 3)
		rig.settle()
	}
	require.Equal(t, 5*time.Second, rig.last.RequeueAfter, "the cache shows two that are gone")
	changed := clones(all)
	changed[0].ResourceVersion = "v9"
	pass, err := rig.pass(t, 100, changed...)
	require.NoError(t, err)
	assert.Len(t, pass.Deleted, 1, "the cache goes on, and shows that one is there again")
	rig.settle()
	_, err = rig.pass(t, 110, all[2:]...)
	require.NoError(t, err)
	pass, err = rig.pass(t, 120, all[2:]...)
	require.NoError(t, err)
	assert.Zero(t, pass.RequeueAfter, "the cache shows all that is known")
}
