package controller_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/podtest"
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
		assert.Equal(t, []string{"delete web-001"}, r.calls)
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
		require.EqualError(t, pass.RelatedErr, "no index")
		assert.Len(t, pass.Deleted, 1)
		assert.Contains(t, r.events, "Warning FailedRelatedPods Error listing related pods: no index")
	})
}
