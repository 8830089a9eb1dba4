// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
)

func TestEventsKeepsSelectors(t *testing.T) {
	t.Parallel()
	orphan := podtest.Pod("orphan")
	t.Run("W53 a selector is parsed once for each version of its owner", func(t *testing.T) {
		t.Parallel()
		rs := ownerNamed("web", web)
		rs.ResourceVersion = "1"
		r := eventRigOver(rs)
		for range 3 {
			require.NoError(t, r.start().ChildAdded(orphan))
		}
		assert.Equal(t, 1, r.specs)
		assert.Equal(t, []string{"default/web", "default/web", "default/web"}, r.woken)

		rs.ResourceVersion, rs.Spec.Selector = "2", &metav1.LabelSelector{MatchLabels: api}
		require.NoError(t, r.start().ChildAdded(orphan))
		assert.Equal(t, 2, r.specs)
		assert.Len(t, r.woken, 3, "the new selector counts")
	})
	t.Run("W53 one that is refused is not parsed again either", func(t *testing.T) {
		t.Parallel()
		rs := ownerNamed("web", nil)
		rs.ResourceVersion = "1"
		r := eventRigOver(rs)
		for range 3 {
			require.NoError(t, r.start().ChildAdded(orphan))
		}
		assert.Equal(t, 1, r.specs)
		assert.Empty(t, r.woken)
	})
	t.Run("an error that may pass is not kept", func(t *testing.T) {
		t.Parallel()
		rs := ownerNamed("web", web)
		rs.ResourceVersion = "1"
		r := eventRigOver(rs)
		r.fails = errors.New("for now")
		require.NoError(t, r.start().ChildAdded(orphan))
		r.fails = nil
		require.NoError(t, r.start().ChildAdded(orphan))
		assert.Equal(t, []string{"default/web"}, r.woken)
	})
	t.Run("an owner that is gone is forgotten", func(t *testing.T) {
		t.Parallel()
		rs := ownerNamed("web", web)
		rs.ResourceVersion = "1"
		r := eventRigOver(rs)
		require.NoError(t, r.start().ChildAdded(orphan))
		require.NoError(t, r.start().OwnerDeleted(rs))
		require.NoError(t, r.start().ChildAdded(orphan))
		assert.Equal(t, 2, r.specs)
	})
	t.Run("two owners of one UID and version, as fixtures have them, keep a selector each", func(t *testing.T) {
		t.Parallel()
		first, second := ownerNamed("first", api), ownerNamed("second", web)
		first.UID, second.UID = "uid", "uid"
		first.ResourceVersion, second.ResourceVersion = "1", "1"
		r := eventRigOver(first, second)
		for range 2 {
			require.NoError(t, r.start().ChildAdded(orphan))
		}
		assert.Equal(t, []string{"default/second", "default/second"}, r.woken)
		assert.Equal(t, 2, r.specs)
	})
	t.Run("owners without a version or a UID are asked each time", func(t *testing.T) {
		t.Parallel()
		nameless := ownerNamed("nameless", web)
		nameless.UID, nameless.ResourceVersion = "", "1"
		r := eventRigOver(ownerNamed("web", web), nameless)
		for range 3 {
			require.NoError(t, r.start().ChildAdded(orphan))
		}
		assert.Equal(t, 6, r.specs)
	})
}
