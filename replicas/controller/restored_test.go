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
	"github.com/replicakit/replicakit/replicas/controller"
)

const late = 301 // seconds

// expired returns a rig whose live lists return the given children. If the rig expects a creation, the expectation
// expires before the number of seconds in the constant late has passed. A pass that begins after this number of
// seconds therefore lists the children live.
func expired(want int32, live ...*corev1.Pod) *podRig {
	r := newRig(want)
	r.opts.UnfilteredChildren = true
	r.live = func() ([]*corev1.Pod, error) { return live, nil }
	return r
}

// expects makes the rig expect a creation that never comes.
func expects(r *podRig) {
	r.awaits(r.owner, "web-lost")
}

// requireRestored requires that the last pass returned ErrRestored, and that the next pass makes no call.
func requireRestored(t *testing.T, r *podRig, err error, proof string) {
	t.Helper()
	require.ErrorIs(t, err, controller.ErrRestored)
	require.ErrorContains(t, err, proof)
	require.ErrorIs(t, r.last.Err, controller.ErrRestored)
	assert.Zero(t, r.last.RequeueAfter)
	assert.Empty(t, r.callsOf("create"))
	assert.Empty(t, r.callsOf("delete"))
	assert.Nil(t, r.last.Status)
	r.calls = nil
	_, err = r.start().Sync(t.Context(), r.key().NamespacedName)
	require.ErrorIs(t, err, controller.ErrRestored)
	assert.Empty(t, r.calls)
}

func TestARestoredServer(t *testing.T) {
	t.Parallel()
	t.Run("a live list that is older than the cache", func(t *testing.T) {
		t.Parallel()
		there := podsOf(replicaSet(3), 1)
		r := expired(3, there...)
		var noticed []error
		r.opts.OnRestored = func(err error) { noticed = append(noticed, err) }
		r.childrenVersion, r.liveVersion = "900", "100"
		expects(r)
		_, err := r.pass(t, late, podsOf(r.owner, 2)...)
		requireRestored(t, r, err, "a live list of children has version 100, and the cache had shown 900")
		require.Len(t, noticed, 1)
		require.ErrorIs(t, noticed[0], controller.ErrRestored)
		assert.Len(t, r.eventsOf("Warning "+controller.ServerRestored), 1)
	})
	t.Run("a live list that is older than an earlier one", func(t *testing.T) {
		t.Parallel()
		r := expired(3)
		r.liveVersion = "900"
		expects(r)
		_, err := r.pass(t, late)
		require.NoError(t, err)
		r.settle()
		r.liveVersion = "100"
		expects(r)
		_, err = r.pass(t, 2*late, r.last.Created...)
		requireRestored(t, r, err, "a live list of children has version 100, and an earlier one had 900")
	})
	t.Run("a live list that has a child in an earlier version than the cache", func(t *testing.T) {
		t.Parallel()
		r := expired(3, podtest.Pod("a", owned(replicaSet(3)), version("4")))
		expects(r)
		_, err := r.pass(t, late, podtest.Pod("a", owned(r.owner), version("9")))
		requireRestored(t, r, err, `"a" was read in version 4, but version 9 had been shown`)
	})
	t.Run("a read of the owner that is older than the cached one", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.owner.ResourceVersion, r.owner.Generation = "20", 1
		r.server(1)
		_, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		requireRestored(t, r, err, `"web" was read in version 8, but version 20 had been shown`)
	})
	t.Run("a read of the owner that is older than an earlier one", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 10)
		_, err := r.pass(t, 0, ready(r.owner, 4)...)
		require.NoError(t, err)
		require.True(t, r.last.Waiting())
		before := r.getOwner
		r.getOwner = func() (*appsv1.ReplicaSet, error) {
			is, err := before()
			is.ResourceVersion = r.owner.ResourceVersion
			return is, err
		}
		for at := time.Second; err == nil && at < time.Minute; at += time.Second {
			_, err = r.passAt(t, at, ready(r.owner, 4)...)
		}
		requireRestored(t, r, err, "had been shown")
	})
	for name, unfiltered := range map[string]bool{"a child in a live list after its DELETED event": true, "but not if the cache may have a selector, as the child has left that": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := podtest.Pod("a", owned(replicaSet(3)))
			r := expired(3, child)
			r.opts.UnfilteredChildren = unfiltered
			require.NoError(t, r.start().ChildDeleted(child))
			expects(r)
			_, err := r.pass(t, late)
			if !unfiltered {
				require.NoError(t, err)
				assert.Len(t, r.last.Created, 2)
				return
			}
			requireRestored(t, r, err, `a live list has "a", although an event reported its deletion`)
		})
	}
}

// None of these cases proves that the server was restored from a backup.
func TestAServerThatWasNotRestored(t *testing.T) {
	t.Parallel()
	t.Run("the event comes while the list is under way", func(t *testing.T) {
		t.Parallel()
		child := podtest.Pod("a", owned(replicaSet(3)))
		r := expired(3)
		r.opts.UnfilteredChildren = true
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{child}, r.start().ChildDeleted(child) }
		expects(r)
		_, err := r.pass(t, late)
		require.NoError(t, err)
	})
	t.Run("a tombstone says only that a list lacked the child, as one of a server that is behind does", func(t *testing.T) {
		t.Parallel()
		child := podtest.Pod("a", owned(replicaSet(3)))
		r := expired(3, child)
		r.opts.UnfilteredChildren = true
		require.NoError(t, r.start().ChildDeleted(struct {
			Key string
			Obj any
		}{"default/a", child}))
		expects(r)
		_, err := r.pass(t, late)
		require.NoError(t, err)
	})
	t.Run("caches are filled in turn by API servers of different age", func(t *testing.T) {
		t.Parallel()
		a, b := podtest.Pod("a", owned(replicaSet(2)), version("5")), podtest.Pod("b", owned(replicaSet(2)), version("8"))
		r := expired(2, a, b)
		r.liveVersion = "9"
		expects(r)
		for i, at := range []string{"9", "6", "9", "7", "9"} {
			cached := []*corev1.Pod{a}
			if at == "9" {
				cached = append(cached, b)
			}
			r.childrenVersion = at
			_, err := r.pass(t, late+i, cached...)
			require.NoError(t, err)
			assert.Empty(t, r.callsOf("create"))
			assert.Len(t, r.last.Active, 2)
			r.settle()
		}
	})
	t.Run("a 404 that is wrong", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pods := podsOf(r.owner, 2)
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, notFound("web") }
		_, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		r.server(1)
		for at := time.Second; at < 10*time.Minute && len(r.last.Deleted) == 0; at += 10 * time.Second {
			_, err = r.passAt(t, at, pods...)
			require.NoError(t, err)
		}
		assert.NotErrorIs(t, r.last.Err, controller.ErrRestored)
	})
	t.Run("versions that are not numbers, and none", func(t *testing.T) {
		t.Parallel()
		for _, v := range []string{"", "x"} {
			r := expired(2, podtest.Pod("a", owned(replicaSet(2)), version(v)))
			r.childrenVersion, r.liveVersion = "y", v
			expects(r)
			_, err := r.pass(t, late, podtest.Pod("a", owned(r.owner), version("9")))
			require.NoError(t, err)
		}
	})
	t.Run("a child that was made again has no UID with a fake client, and an earlier version", func(t *testing.T) {
		t.Parallel()
		is, was := podtest.Pod("a", owned(replicaSet(2)), version("1")), podtest.Pod("a", owned(replicaSet(2)), version("9"))
		is.UID, was.UID = "", ""
		r := expired(2, is)
		expects(r)
		_, err := r.pass(t, late, was)
		require.NoError(t, err)
	})
}
