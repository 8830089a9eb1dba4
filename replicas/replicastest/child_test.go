// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestCreatePod(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	in := pod("web")
	in.Spec.NodeName, in.Status.Phase = "", corev1.PodRunning
	p := createPod(t, c, in)
	assert.Equal(t, namespace, p.Namespace)
	assert.Equal(t, corev1.PodPending, p.Status.Phase)
	assert.Equal(t, int64(30), *p.Spec.TerminationGracePeriodSeconds)
	assert.Nil(t, in.Spec.TerminationGracePeriodSeconds, "the input is not changed")

	_, err := c.CreateChild(t.Context(), namespace, pod("web"))
	assert.True(t, apierrors.IsAlreadyExists(err), err)
	_, err = c.CreateChild(t.Context(), namespace, pod("Web!"))
	assert.True(t, apierrors.IsInvalid(err), err)
	_, err = c.GetChild(t.Context(), "other", "web")
	assert.True(t, apierrors.IsNotFound(err), err)

	long := pod("")
	long.GenerateName = strings.Repeat("x", 100) + "-"
	assert.Len(t, createPod(t, c, long).Name, 63)
}

func TestQuota(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	c.SetQuota(namespace, 2)
	createPod(t, c, pod("a"))
	createPod(t, c, pod("b"))
	_, err := c.CreateChild(t.Context(), namespace, pod("c"))
	require.True(t, apierrors.IsForbidden(err), err)
	require.EqualError(t, err,
		`pods "c" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=2, limited: pods=2`)

	_, err = c.CreateChild(t.Context(), "other", pod("c"))
	require.NoError(t, err, "another namespace has none")
	_, err = c.EditChild(t.Context(), namespace, "a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	require.NoError(t, err)
	createPod(t, c, pod("c")) // a finished pod does not count for the quota
	c.SetQuota(namespace, 3)
	createPod(t, c, pod("d"))
}

func TestDeletePodPreconditions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		want     func(p *corev1.Pod) *metav1.Preconditions
		conflict bool
	}{
		"none":           {func(*corev1.Pod) *metav1.Preconditions { return nil }, false},
		"its UID":        {func(p *corev1.Pod) *metav1.Preconditions { return &metav1.Preconditions{UID: &p.UID} }, false},
		"another UID":    {func(*corev1.Pod) *metav1.Preconditions { return metav1.NewUIDPreconditions("other") }, true},
		"latest version": {func(p *corev1.Pod) *metav1.Preconditions { return versions(p.ResourceVersion) }, false},
		"older version":  {func(*corev1.Pod) *metav1.Preconditions { return versions("0") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			p := createPod(t, c, pod("web"))
			_, err := c.DeleteChild(t.Context(), namespace, "web", metav1.DeleteOptions{Preconditions: tc.want(p)})
			_, left := c.GetChild(t.Context(), namespace, "web")
			if tc.conflict {
				assert.True(t, apierrors.IsConflict(err), err)
				assert.NoError(t, left)
				return
			}
			require.NoError(t, err)
			assert.True(t, apierrors.IsNotFound(left), left)
		})
	}
}

func versions(v string) *metav1.Preconditions { return &metav1.Preconditions{ResourceVersion: &v} }

func TestDeletePod(t *testing.T) {
	t.Parallel()
	seconds := func(n int64) metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: &n} }

	t.Run("a pod that runs has its grace period", func(t *testing.T) {
		t.Parallel()
		c := newCluster(1)
		createPod(t, c, pod("web"))
		run(c, 10*time.Second)
		version, err := c.DeleteChild(t.Context(), namespace, "web", metav1.DeleteOptions{})
		require.NoError(t, err)
		p, err := c.GetChild(t.Context(), namespace, "web")
		require.NoError(t, err)
		assert.Equal(t, p.ResourceVersion, version)
		assert.Equal(t, 30*time.Second, p.DeletionTimestamp.Sub(c.Clock.Now()))

		again, err := c.DeleteChild(t.Context(), namespace, "web", metav1.DeleteOptions{})
		require.NoError(t, err)
		assert.Equal(t, version, again, "once more changes nothing")

		run(c, 30*time.Second-1)
		_, err = c.GetChild(t.Context(), namespace, "web")
		require.NoError(t, err)
		run(c, 1)
		_, err = c.GetChild(t.Context(), namespace, "web")
		assert.True(t, apierrors.IsNotFound(err), err)
	})
	t.Run("the grace period can only become shorter", func(t *testing.T) {
		t.Parallel()
		c := newCluster(1)
		createPod(t, c, pod("web"))
		run(c, 10*time.Second)
		for _, grace := range []int64{20, 25, 5} {
			_, err := c.DeleteChild(t.Context(), namespace, "web", seconds(grace))
			require.NoError(t, err)
		}
		run(c, 5*time.Second)
		_, err := c.GetChild(t.Context(), namespace, "web")
		assert.True(t, apierrors.IsNotFound(err), err)
	})
	t.Run("a finished pod is gone at once", func(t *testing.T) {
		t.Parallel()
		c := newCluster(1)
		createPod(t, c, pod("web"))
		run(c, 10*time.Second)
		_, err := c.EditChild(t.Context(), namespace, "web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		require.NoError(t, err)
		version, err := c.DeleteChild(t.Context(), namespace, "web", metav1.DeleteOptions{})
		require.NoError(t, err)
		assert.Empty(t, version)
		assert.Empty(t, c.Children(namespace))
	})
	t.Run("a finalizer holds a pod", func(t *testing.T) {
		t.Parallel()
		c := newCluster(1)
		held := pod("web")
		held.Finalizers = []string{"example.com/hold"}
		createPod(t, c, held)
		run(c, 10*time.Second)
		_, err := c.DeleteChild(t.Context(), namespace, "web", metav1.DeleteOptions{})
		require.NoError(t, err)
		run(c, time.Hour)
		require.Len(t, c.Children(namespace), 1)
		_, err = c.EditChild(t.Context(), namespace, "web", func(p *corev1.Pod) { p.Finalizers = nil })
		require.NoError(t, err)
		assert.Empty(t, c.Children(namespace))
	})
	t.Run("a late confirmation does not meet the next pod of that name", func(t *testing.T) {
		t.Parallel()
		c := newCluster(1)
		createPod(t, c, pod("web"))
		run(c, 10*time.Second)
		for _, grace := range []int64{20, 0} {
			_, err := c.DeleteChild(t.Context(), namespace, "web", seconds(grace))
			require.NoError(t, err)
		}
		reborn := createPod(t, c, pod("web"))
		run(c, time.Minute)
		p, err := c.GetChild(t.Context(), namespace, "web")
		require.NoError(t, err)
		assert.Equal(t, reborn.UID, p.UID)
	})
	t.Run("no pod is NotFound", func(t *testing.T) {
		t.Parallel()
		_, err := newCluster(0).DeleteChild(t.Context(), namespace, "web", metav1.DeleteOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
	})
}

func TestEditPod(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	createPod(t, c, pod("web"))
	_, err := c.EditChild(t.Context(), namespace, "web", func(p *corev1.Pod) { p.UID = types.UID("other") })
	assert.True(t, apierrors.IsInvalid(err), err)
	p, err := c.EditChild(t.Context(), namespace, "web", func(p *corev1.Pod) { p.Labels["app"] = "debug" })
	require.NoError(t, err)
	p.Labels["app"] = "mine"
	stored, err := c.GetChild(t.Context(), namespace, "web")
	require.NoError(t, err)
	assert.Equal(t, "debug", stored.Labels["app"], "what is handed out is a copy")
}
