// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

func TestCreateReplicaSet(t *testing.T) {
	t.Parallel()
	t.Run("metadata is the server's", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		c.Clock.Advance(1500 * time.Millisecond)
		in := replicaSet("web", 3)
		in.Spec.Replicas, in.Generation, in.Status.Replicas = nil, 7, 7
		rs, err := c.CreateOwner(t.Context(), in)
		require.NoError(t, err)
		assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, rs.UID)
		assert.Equal(t, "1", rs.ResourceVersion)
		assert.Equal(t, int64(1), rs.Generation)
		assert.Equal(t, int32(1), *rs.Spec.Replicas)
		assert.Zero(t, rs.Status)
		assert.Equal(t, time.Second, rs.CreationTimestamp.Sub(c.Clock.Now().Add(-1500*time.Millisecond)), "whole seconds")
		assert.Nil(t, in.Spec.Replicas, "the input is not changed")
	})
	t.Run("a name is taken once", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		createReplicaSet(t, c, 1)
		_, err := c.CreateOwner(t.Context(), replicaSet("web", 1))
		assert.True(t, apierrors.IsAlreadyExists(err), err)
	})
	t.Run("a bad name is invalid", func(t *testing.T) {
		t.Parallel()
		_, err := newCluster(0).CreateOwner(t.Context(), replicaSet("Web!", 1))
		assert.True(t, apierrors.IsInvalid(err), err)
	})
	t.Run("a context that has ended makes no call", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.CreateOwner(ctx, replicaSet("web", 1))
		require.ErrorIs(t, err, context.Canceled)
		_, err = c.GetOwner(t.Context(), namespace, "web")
		assert.True(t, apierrors.IsNotFound(err), err)
	})
}

func TestEditReplicaSet(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	created := createReplicaSet(t, c, 1)
	for _, step := range []struct {
		name       string
		change     func(*appsv1.ReplicaSet)
		generation int64
		version    string
	}{
		{"nothing is no write", func(*appsv1.ReplicaSet) {}, 1, "1"},
		{"metadata is no new generation", func(rs *appsv1.ReplicaSet) { rs.Labels = map[string]string{"a": "b"} }, 1, "2"},
		{"the spec is", func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 5 }, 2, "3"},
		{"the status is not to be changed here", func(rs *appsv1.ReplicaSet) { rs.Status.Replicas = 9 }, 2, "3"},
	} {
		rs, err := c.EditOwner(t.Context(), namespace, "web", step.change)
		require.NoError(t, err, step.name)
		assert.Equal(t, step.generation, rs.Generation, step.name)
		assert.Equal(t, step.version, rs.ResourceVersion, step.name)
		assert.Zero(t, rs.Status, step.name)
	}
	_, err := c.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.UID = "other" })
	require.True(t, apierrors.IsInvalid(err), err)
	assert.Equal(t, int64(1), created.Generation, "what was handed out does not change")
}

func TestUpdateReplicaSetStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change   func(*appsv1.ReplicaSet)
		conflict bool
	}{
		"the latest version":   {func(*appsv1.ReplicaSet) {}, false},
		"no version":           {func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "" }, false},
		"an older version":     {func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "1" }, true},
		"another object's UID": {func(rs *appsv1.ReplicaSet) { rs.UID = types.UID("other") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			createReplicaSet(t, c, 1)
			rs, err := c.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 5 })
			require.NoError(t, err)
			rs.Status.Replicas = 3
			rs.Spec.MinReadySeconds = 7
			tc.change(rs)
			written, err := c.UpdateOwnerStatus(t.Context(), rs)
			if tc.conflict {
				require.True(t, apierrors.IsConflict(err), err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, int32(3), written.Status.Replicas)
			assert.Equal(t, int32(5), written.Spec.MinReadySeconds, "only the status is written")
			assert.Equal(t, "3", written.ResourceVersion)
			again, err := c.UpdateOwnerStatus(t.Context(), written)
			require.NoError(t, err)
			assert.Equal(t, "3", again.ResourceVersion, "the same status is no write")
		})
	}
	_, err := newCluster(0).UpdateOwnerStatus(t.Context(), replicaSet("web", 1))
	assert.True(t, apierrors.IsNotFound(err), err)
}

func TestDeleteReplicaSet(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	in := replicaSet("web", 1)
	in.Finalizers = []string{"example.com/hold"}
	_, err := c.CreateOwner(t.Context(), in)
	require.NoError(t, err)

	require.NoError(t, c.DeleteOwner(t.Context(), namespace, "web", ""))
	rs, err := c.GetOwner(t.Context(), namespace, "web")
	require.NoError(t, err, "its finalizer holds it")
	assert.NotNil(t, rs.DeletionTimestamp)

	_, err = c.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Finalizers = nil })
	require.NoError(t, err)
	assert.True(t, apierrors.IsNotFound(c.DeleteOwner(t.Context(), namespace, "web", "")))
	reborn := createReplicaSet(t, c, 1)
	assert.NotEqual(t, rs.UID, reborn.UID)
}

func TestSeed(t *testing.T) {
	t.Parallel()
	names := func(seed uint64) []string {
		c := replicastest.NewPodCluster(replicastest.Options{Seed: seed})
		p := pod("")
		p.GenerateName = "web-"
		var names []string
		for range 3 {
			created := createPod(t, c, p)
			names = append(names, created.Name, string(created.UID))
		}
		return names
	}
	first, again := names(1), names(1)
	assert.Equal(t, first, again)
	assert.NotEqual(t, first, names(2))
	assert.Regexp(t, `^web-[bcdfghjklmnpqrstvwxz2456789]{5}$`, first[0])
}
