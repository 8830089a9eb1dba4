// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// lacking is a rig whose server has an owner with annotations, of the version that the
// cache has without some of them.
func lacking(cached map[string]string) (r *podRig, whole map[string]string) {
	r = newRig(50)
	r.kind.BeforeScale = nothing
	r.owner.ResourceVersion, r.owner.Annotations = "5", cached
	whole = map[string]string{"deployment.kubernetes.io/revision": "3"}
	r.getOwner = func() (*appsv1.ReplicaSet, error) {
		rs := r.owner.DeepCopy()
		rs.Annotations = whole
		return rs, nil
	}
	return r, whole
}

// report makes a pass that finds another number of pods than the one before, and returns
// how often it read the owner.
func (r *rig[O, C]) report(t *testing.T, seconds int, children ...C) (reads int, err error) {
	t.Helper()
	before := len(r.statuses)
	_, err = r.pass(t, seconds, children...)
	if err == nil {
		require.Len(t, r.statuses, before+1)
	}
	return len(r.callsOf("read owner")), err
}

// The status of some kinds is written with their labels and annotations: with an owner
// that lacks them it would erase them.
func TestNoStatusIsWrittenToAnOwnerThatMayLackAnnotations(t *testing.T) {
	t.Parallel()
	revision := map[string]string{"deployment.kubernetes.io/revision": "3"}
	t.Run("the first one is written to what is read, and then all, as the cache drops annotations", func(t *testing.T) {
		t.Parallel()
		r, whole := lacking(nil)
		for i := range 20 {
			reads, err := r.report(t, i, podsOf(r.owner, 1+i%2)...)
			require.NoError(t, err)
			assert.Equal(t, 1, reads)
			assert.Equal(t, whole, r.statuses[i].Annotations)
			assert.Equal(t, int32(1+i%2), r.statuses[i].Status.Replicas)
		}
	})
	t.Run("labels are as good", func(t *testing.T) {
		t.Parallel()
		r, _ := lacking(revision)
		r.getOwner = func() (*appsv1.ReplicaSet, error) {
			rs := r.owner.DeepCopy()
			rs.Labels = web
			return rs, nil
		}
		for i := range 2 {
			_, err := r.report(t, i, podsOf(r.owner, 1+i)...)
			require.NoError(t, err)
			assert.Equal(t, web, r.statuses[i].Labels)
		}
	})
	t.Run("one whole owner with annotations is enough", func(t *testing.T) {
		t.Parallel()
		r, _ := lacking(revision)
		for i, want := range []int{1, 0, 0} {
			reads, err := r.report(t, i, podsOf(r.owner, 1+i)...)
			require.NoError(t, err)
			assert.Equal(t, want, reads)
			assert.Equal(t, revision, r.statuses[i].Annotations)
		}
	})
	t.Run("ten without annotations are enough", func(t *testing.T) {
		t.Parallel()
		r, whole := lacking(nil)
		clear(whole)
		reads := 0
		for i := range 20 {
			n, err := r.report(t, i, podsOf(r.owner, 1+i%2)...)
			require.NoError(t, err)
			reads += n
		}
		assert.Equal(t, 10, reads)
	})
	t.Run("another version of the owner tells nothing", func(t *testing.T) {
		t.Parallel()
		r, _ := lacking(revision)
		for i := range 20 {
			version := strconv.Itoa(6 + i)
			r.getOwner = func() (*appsv1.ReplicaSet, error) {
				rs := r.owner.DeepCopy()
				rs.ResourceVersion = version
				return rs, nil
			}
			reads, err := r.report(t, i, podsOf(r.owner, 1+i%2)...)
			require.NoError(t, err)
			assert.Equal(t, 1, reads)
			assert.Equal(t, version, r.statuses[i].ResourceVersion)
		}
	})
	t.Run("a pass that has read the owner reads it no second time", func(t *testing.T) {
		t.Parallel()
		r, whole := lacking(nil)
		*r.owner.Spec.Replicas, r.kind.BeforeScale = 2, nil
		reads, err := r.report(t, 0, ready(r.owner, 3)...)
		require.NoError(t, err)
		assert.Len(t, r.last.Deleted, 1)
		assert.Equal(t, 1, reads, "before the deletion")
		assert.Equal(t, whole, r.statuses[0].Annotations)
	})
	t.Run("a pass that goes by what it has read learns nothing about the cache", func(t *testing.T) {
		t.Parallel()
		r := behind(2, 3)
		whole, _ := r.getOwner()
		whole.Annotations = revision
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return whole.DeepCopy(), nil }
		_, err := r.pass(t, 0, ready(r.owner, 3)...)
		require.NoError(t, err)
		r.comeBack(t, 1, append(ready(r.owner, 3), podtest.Pod("orphan"))...)
		require.True(t, r.last.OwnerWasStale)
		require.Len(t, r.callsOf("read owner"), 2, "and again before the adoption")
		r.settle()

		r.owner = r.owner.DeepCopy()
		r.owner.ResourceVersion, r.owner.Generation, r.owner.Spec = "9", 2, whole.Spec
		whole.ResourceVersion = "9"
		r.updateStatus = func(int, *appsv1.ReplicaSet) error { return nil }
		_, err = r.pass(t, 90, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.Equal(t, revision, r.statuses[len(r.statuses)-1].Annotations)
	})
	t.Run("a Conflict is tried again on another read", func(t *testing.T) {
		t.Parallel()
		r, whole := lacking(nil)
		r.updateStatus = func(write int, _ *appsv1.ReplicaSet) error {
			if write == 1 {
				return conflict("web")
			}
			return nil
		}
		_, err := r.pass(t, 0, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		assert.Len(t, r.callsOf("read owner"), 2)
		require.Len(t, r.statuses, 2)
		assert.Equal(t, whole, r.statuses[1].Annotations)
	})
	t.Run("who may not read owners writes to those of the cache, and does not ask for ever", func(t *testing.T) {
		t.Parallel()
		r, _ := lacking(nil)
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, forbidden("web", "no") }
		reads := 0
		for i := range 20 {
			n, err := r.report(t, i, podsOf(r.owner, 1+i%2)...)
			require.NoError(t, err)
			reads += n
		}
		assert.Equal(t, 10+1, reads, "one of them because a pod left")
	})
	t.Run("if the read fails, the status waits", func(t *testing.T) {
		t.Parallel()
		for name, read := range map[string]func() (*appsv1.ReplicaSet, error){
			"an error":  func() (*appsv1.ReplicaSet, error) { return nil, errors.New("down") },
			"no object": func() (*appsv1.ReplicaSet, error) { return nil, nil },
			"another UID": func() (*appsv1.ReplicaSet, error) {
				rs := replicaSet(2)
				rs.UID = "uid-of-the-next"
				return rs, nil
			},
		} {
			r, _ := lacking(nil)
			r.getOwner = read
			reads, err := r.report(t, 0, podsOf(r.owner, 1)...)
			require.Error(t, err, name)
			require.ErrorIs(t, err, r.last.StatusErr)
			assert.Equal(t, 1, reads)
			assert.Empty(t, r.statuses)
		}
	})
}

// nothing lets no child be created or deleted.
func nothing(context.Context, *appsv1.ReplicaSet, []*corev1.Pod, replicas.PodScale) (replicas.PodScale, time.Duration, error) {
	return replicas.PodScale{}, 0, nil
}
