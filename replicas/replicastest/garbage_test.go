// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy       metav1.DeletionPropagation
		at0s, at1s   bool // whether the owner still exists after 0 s and after 1 s
		pods, owners int  // how many pods and owners exist in the end
	}{
		"in the background the owner goes first":  {metav1.DeletePropagationBackground, false, false, 0, 0},
		"the background is the default":           {"", false, false, 0, 0},
		"in the foreground it waits for the pods": {metav1.DeletePropagationForeground, true, true, 0, 0},
		"orphans are left":                        {metav1.DeletePropagationOrphan, true, false, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(1)
			rs := createReplicaSet(t, c, 2)
			exists := func() bool {
				_, err := c.GetOwner(t.Context(), namespace, "web")
				return err == nil
			}
			for _, name := range []string{"a", "b"} {
				p := pod(name)
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
				createPod(t, c, p)
			}
			run(c, 10*time.Second)
			require.NoError(t, c.DeleteOwner(t.Context(), namespace, "web", tc.policy))
			assert.Equal(t, tc.at0s, exists())
			run(c, time.Second)
			assert.Equal(t, tc.at1s, exists())
			run(c, time.Minute)
			assert.False(t, exists())
			assert.Len(t, c.Children(namespace), tc.pods)
			for _, p := range c.Children(namespace) {
				assert.Empty(t, p.OwnerReferences)
			}
		})
	}
	t.Run("a pod that comes too late for its owner", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		p := pod("late")
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", APIVersion: "apps/v1", Name: "web", UID: "gone"}}
		createPod(t, c, p)
		run(c, time.Minute)
		assert.Empty(t, c.Children(namespace))
	})
	t.Run("a pod with another owner left", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		p := pod("shared")
		p.OwnerReferences = []metav1.OwnerReference{
			{Kind: "ReplicaSet", APIVersion: "apps/v1", Name: "web", UID: "gone"},
			{Kind: "Foreign", APIVersion: "example.com/v1", Name: "x", UID: "there"},
		}
		createPod(t, c, p)
		run(c, time.Minute)
		require.Len(t, c.Children(namespace), 1)
		assert.Len(t, c.Children(namespace)[0].OwnerReferences, 1)
	})
}

func TestTerminateNamespace(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	createReplicaSet(t, s.PodCluster, 2)
	s.world.Run(10 * time.Second)
	s.TerminateNamespace(namespace)
	_, err := s.CreateChild(t.Context(), namespace, pod("a"))
	assert.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), err)
	_, err = s.CreateOwner(t.Context(), replicaSet("other", 1))
	assert.True(t, apierrors.IsForbidden(err), err)
	assert.False(t, s.CreateNamespace(namespace))
	s.world.Run(2 * time.Minute)
	assert.Empty(t, s.Children(namespace))
	_, err = s.CreateChild(t.Context(), namespace, pod("a"))
	assert.True(t, apierrors.IsNotFound(err), err)
	require.True(t, s.CreateNamespace(namespace))
	createPod(t, s.PodCluster, pod("a"))
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	createPod(t, c, pod("a"))
	c.Webhook = func(verb string, p *corev1.Pod) error {
		return failure.Invalid.Of(replicastest.Call{Verb: verb, Kind: "Pod"})
	}
	_, err := c.CreateChild(t.Context(), namespace, pod("b"))
	require.True(t, apierrors.IsInvalid(err), err)
	_, err = c.DeleteChild(t.Context(), namespace, "a", metav1.DeleteOptions{})
	require.True(t, apierrors.IsInvalid(err), err)
	assert.Len(t, c.Children(namespace), 1)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	is := map[failure.Failure]func(error) bool{
		failure.Timeout:            apierrors.IsTimeout,
		failure.ServiceUnavailable: apierrors.IsServiceUnavailable,
		failure.InternalError:      apierrors.IsInternalError,
		failure.TooManyRequests:    apierrors.IsTooManyRequests,
		failure.Conflict:           apierrors.IsConflict,
		failure.Forbidden:          apierrors.IsForbidden,
		failure.Invalid:            apierrors.IsInvalid,
		failure.BadRequest:         apierrors.IsBadRequest,
		failure.ConnectionReset:    utilnet.IsConnectionReset,
	}
	for f := range failure.Failures {
		assert.True(t, is[f](f.Of(replicastest.Call{Kind: "ReplicaSet"})), f)
	}
	seconds, ok := apierrors.SuggestsClientDelay(failure.TooManyRequests.Of(replicastest.Call{}))
	assert.True(t, ok)
	assert.Equal(t, 2, seconds)
}

func TestChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	var log []string
	c.Changed = func(before, after metav1.Object) {
		switch {
		case before == nil:
			log = append(log, "new "+after.GetName())
		case after == nil:
			log = append(log, "gone "+before.GetName())
		default:
			log = append(log, "changed "+after.GetName())
		}
	}
	createPod(t, c, pod("a"))
	relabel(t, c, "a")
	remove(t, c, "a")
	assert.Equal(t, []string{"new a", "changed a", "gone a"}, log)
}
