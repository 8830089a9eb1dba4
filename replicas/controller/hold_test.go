// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestHolds contains the cases that a transcript cannot express. The other cases are in the files holds.txt,
// quota.txt, namespace-going.txt and retry-after.txt in testdata.
func TestHolds(t *testing.T) {
	t.Parallel()
	t.Run("a list that its own pass gave up holds nobody", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.awaits(r.owner, "web-lost")
		r.now = r.now.Add(400 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		r.live = func() ([]*corev1.Pod, error) {
			cancel()
			return nil, ctx.Err()
		}
		_, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 1), nil }
		pass, err := r.sync(t, t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, pass.LiveLists())
	})
	t.Run("V16 the end of another incarnation ends no hold", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return quotaFull() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		old := r.owner.DeepCopy()
		old.UID = "old"
		require.NoError(t, r.start().OwnerDeleted(old))
		pass, err := r.passAt(t, 100*time.Millisecond)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
	})
}
