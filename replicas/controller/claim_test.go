// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strconv"
	"sync/atomic"
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

func TestClaims(t *testing.T) {
	t.Parallel()
	t.Run("C26 an undecided orphan holds one place", func(t *testing.T) {
		t.Parallel()
		r := newRig(5)
		r.patch = func(*corev1.Pod) error { return forbidden("b", "policy") }
		pass, err := r.pass(t, 0, podtest.Pod("b"), podtest.Pod("mine", owned(r.owner)))
		require.ErrorContains(t, err, "policy")
		assert.Len(t, pass.Created, 3)
	})
	t.Run("W42 the wait of an orphan that leaves the cache is forgotten", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.patch = func(p *corev1.Pod) error { return invalid(p.Name) }
		orphan := podtest.Pod("orphan", version("7"))
		for i, cached := range [][]*corev1.Pod{{orphan}, {orphan}, nil, {orphan}} {
			_, err := r.pass(t, i, cached...)
			require.NoError(t, err)
			assert.Len(t, r.callsOf("patch"), []int{1, 0, 0, 1}[i])
		}
	})
	t.Run("a client that answers without a pod has adopted it all the same", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.silent = true
		pass, err := r.pass(t, 0, podtest.Pod("a"))
		require.NoError(t, err)
		assert.Len(t, pass.Active, 1)
	})
	t.Run("a context that has ended is an error, and decides nothing, if nothing is to be claimed", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.children = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 2), nil }
		r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
			t.Error("it is too late to scale")
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		pass, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.True(t, pass.Waiting())
	})
	t.Run("W39 claims run in parallel within the cap", func(t *testing.T) {
		t.Parallel()
		r := newRig(8)
		r.opts.MaxParallel = 8
		together := make(chan struct{})
		var under atomic.Int64
		r.patch = func(*corev1.Pod) error {
			if under.Add(1) == 8 {
				close(together)
			}
			<-together
			return nil
		}
		var orphans []*corev1.Pod
		for i := range 8 {
			orphans = append(orphans, podtest.Pod(strconv.Itoa(i)))
		}
		pass, err := r.pass(t, 0, orphans...)
		require.NoError(t, err)
		assert.Len(t, pass.Adopted, 8)
	})
}

func TestNoAdoption(t *testing.T) {
	t.Parallel()
	without := func(r *podRig) *podRig {
		withSpec(r, func(s *replicas.SpecOfPods) { s.NoAdoption = true })
		return r
	}
	t.Run("orphans are left alone, and no place waits for them", func(t *testing.T) {
		t.Parallel()
		r := without(newRig(2))
		pass, err := r.pass(t, 0, podtest.Pod("mine", owned(r.owner)), podtest.Pod("orphan"))
		require.NoError(t, err)
		assert.Equal(t, []string{"create default/web-bbbbb"}, r.calls)
		assert.Equal(t, []string{"mine"}, names(pass.Active))
		assert.Empty(t, pass.Gates)
	})
	t.Run("a stale view with orphans is listed, and they are left alone", func(t *testing.T) {
		t.Parallel()
		r := without(newRig(2))
		r.newProcess = true
		pods := []*corev1.Pod{podtest.Pod("mine", owned(r.owner)), podtest.Pod("orphan"), podtest.Pod("lost", owned(r.owner), podtest.Labels(nil))}
		r.live = func() ([]*corev1.Pod, error) { return pods[:2], nil }
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, 1, telemetry.LiveLists(pass.Calls))
		assert.Equal(t, []string{"lost"}, names(pass.Released))
		assert.Equal(t, []string{"web-bbbbb"}, names(pass.Created))
	})
	t.Run("a child whose reference a person removes is replaced", func(t *testing.T) {
		t.Parallel()
		r := without(newRig(2))
		r.version = "8"
		pods := versioned(podsOf(r.owner, 2))
		_, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		free := clone(pods[1])
		free.OwnerReferences, free.ResourceVersion = nil, "9"
		require.NoError(t, r.start().ChildUpdated(pods[1], free))
		assert.Equal(t, []string{"default/web"}, r.woken[:1])
		pass, err := r.pass(t, 1, pods[0], free)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-bbbbb"}, names(pass.Created))
		assert.Empty(t, r.callsOf("patch"))
	})
	t.Run("an orphan in a slot is a stranger there, and the creation is tried again", func(t *testing.T) {
		t.Parallel()
		r := without(newSlots(2))
		orphan := podtest.Pod("web-1")
		r.create = func(int) error { return alreadyExists("web-1") }
		r.get = func(string) (*corev1.Pod, error) { return orphan, nil }
		cached := append(inSlots(r.owner, "web-0"), orphan)
		pass, err := r.pass(t, 0, cached...)
		require.NoError(t, err)
		require.Len(t, pass.Gates, 1)
		assert.Equal(t, controller.NameTaken, pass.Gates[0].Reason)
		assert.Empty(t, r.callsOf("patch"))
		r.create = func(int) error { return nil }
		pass, err = r.pass(t, 2, cached[:1]...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1"}, names(pass.Created))
	})
	t.Run("a webhook that takes the owner from new children makes strays, and not children without end", func(t *testing.T) {
		t.Parallel()
		r := without(newRig(1))
		r.mutate = func(p *corev1.Pod) { p.OwnerReferences = nil }
		pass, err := r.pass(t, 0)
		require.ErrorContains(t, err, "does not belong to the owner")
		assert.Equal(t, []string{"create default/web-bbbbb", "delete web-bbbbb"}, r.calls)
		require.Len(t, pass.Gates, 1)
		assert.Equal(t, controller.ChangedByWebhook, pass.Gates[0].Reason)
	})
}

func TestAContextThatEndsWhileClaimsFail(t *testing.T) {
	t.Parallel()
	r := newRig(4)
	r.patch = func(pod *corev1.Pod) error {
		if pod.Name == "invalid" {
			return invalid(pod.Name)
		}
		return forbidden(pod.Name, "policy")
	}
	pods := append(podsOf(r.owner, 2), podtest.Pod("orphan", version("7")), podtest.Pod("invalid", version("7")))
	_, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	r.now = podtest.Now.Add(40 * time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.sync(t, ctx)
	require.Error(t, err)
	_, err = r.pass(t, 50, pods...)
	require.Error(t, err)
	r.settle()
	pass, _ := r.pass(t, 301, pods...)
	assert.Equal(t, []string{"invalid", "orphan"}, gatesOf(pass.Gates, controller.AdoptionRefused), "refused for five minutes")
	assert.Len(t, r.callsOf("dry-run web-000"), 1)
}
