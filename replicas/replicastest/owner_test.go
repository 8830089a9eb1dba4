// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
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

func TestPatchReplicaSetStatus(t *testing.T) {
	t.Parallel()
	is := appsv1.ReplicaSetStatus{Replicas: 3, ReadyReplicas: 2, Conditions: []appsv1.ReplicaSetCondition{
		{Type: "A", Status: corev1.ConditionTrue}, {Type: "B", Status: corev1.ConditionTrue},
	}}
	for name, tc := range map[string]struct {
		patch string
		want  func(s *appsv1.ReplicaSetStatus) // nil: a Conflict
	}{
		"the latest version":                {`{"metadata":{"resourceVersion":"3","uid":"$uid"},"status":{"replicas":4}}`, func(s *appsv1.ReplicaSetStatus) { s.Replicas = 4 }},
		"no version":                        {`{"status":{"replicas":4}}`, func(s *appsv1.ReplicaSetStatus) { s.Replicas = 4 }},
		"an older version":                  {`{"metadata":{"resourceVersion":"2"},"status":{"replicas":4}}`, nil},
		"another object's UID":              {`{"metadata":{"uid":"other"},"status":{"replicas":4}}`, nil},
		"a null takes a field away":         {`{"status":{"readyReplicas":null,"conditions":null}}`, func(s *appsv1.ReplicaSetStatus) { s.ReadyReplicas, s.Conditions = 0, nil }},
		"a list takes the place of another": {`{"status":{"conditions":[{"type":"B","status":"True"}]}}`, func(s *appsv1.ReplicaSetStatus) { s.Conditions = s.Conditions[1:] }},
		"nothing but the status is written": {`{"metadata":{"labels":{"a":"b"}},"spec":{"minReadySeconds":7}}`, func(*appsv1.ReplicaSetStatus) {}},
		"the same status is no write":       {`{"status":{"replicas":3}}`, func(*appsv1.ReplicaSetStatus) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			rs := createReplicaSet(t, c, 1)
			text, err := json.Marshal(map[string]any{"status": is})
			require.NoError(t, err)
			before, err := c.PatchOwnerStatus(t.Context(), namespace, "web", selector.Patch{Type: types.MergePatchType, Data: text})
			require.NoError(t, err)
			require.Equal(t, is, before.Status)
			before, err = c.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 5 })
			require.NoError(t, err)
			require.Equal(t, "3", before.ResourceVersion)
			patch := selector.Patch{Type: types.MergePatchType, Data: []byte(strings.ReplaceAll(tc.patch, "$uid", string(rs.UID)))}
			after, err := c.PatchOwnerStatus(t.Context(), namespace, "web", patch)
			if tc.want == nil {
				require.True(t, apierrors.IsConflict(err), err)
				return
			}
			require.NoError(t, err)
			want := before.DeepCopy()
			if tc.want(&want.Status); !assert.ObjectsAreEqual(before, want) {
				want.ResourceVersion = "4"
			}
			assert.Equal(t, want, after)
		})
	}
	_, err := newCluster(0).PatchOwnerStatus(t.Context(), namespace, "web", statusPatch(""))
	assert.True(t, apierrors.IsNotFound(err), err)
	c := newCluster(0)
	createReplicaSet(t, c, 1)
	_, err = c.PatchOwnerStatus(t.Context(), namespace, "web", selector.Patch{Type: types.StrategicMergePatchType, Data: []byte(`{}`)})
	require.ErrorContains(t, err, "application/strategic-merge-patch+json")
	for _, text := range []string{`[`, `{"status":{"replicas":"many"}}`} {
		_, err = c.PatchOwnerStatus(t.Context(), namespace, "web", selector.Patch{Type: types.MergePatchType, Data: []byte(text)})
		assert.True(t, apierrors.IsBadRequest(err), err)
	}
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
