// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
)

func TestPaused(t *testing.T) {
	t.Parallel()
	rs := replicaSet(2)
	orphan := newWorker(rs, "orphan", 1, func(w *worker) { w.OwnerReferences = nil })
	for name, tt := range map[string]struct {
		replicas int32
		pending  expectations.State
	}{
		"creates nothing":                       {5, expectations.Satisfied},
		"deletes nothing":                       {0, expectations.Satisfied},
		"asks for no list if the view is stale": {5, expectations.Expired},
		"does not wait for expectations":        {5, expectations.Waiting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(tt.replicas)
			spec.Paused, spec.Facts.Pending = true, tt.pending
			plan, err := replicas.Manage([]*worker{newWorker(rs, "a", 1), orphan}, spec)
			require.NoError(t, err)
			assert.True(t, plan.Scale.IsZero())
			assert.Equal(t, replicas.Blocked{Reason: replicas.Paused}, plan.Blocked)
			assert.Equal(t, []*worker{orphan}, plan.Claims.Adopt, "claims go on")

			spec.Paused, spec.Facts.Pending = false, expectations.Satisfied
			plan, err = replicas.Manage([]*worker{newWorker(rs, "a", 1), orphan}, spec)
			require.NoError(t, err)
			assert.False(t, plan.Scale.IsZero())
		})
	}
}

func TestBaseName(t *testing.T) {
	t.Parallel()
	prefix := ""
	spec := workerSpec(1)
	spec.BaseName = "pool"
	spec.Facts.Names = func(p string) string {
		prefix = p
		return p + "x"
	}
	scale, err := replicas.ScaleTo[*worker](nil, spec)
	require.NoError(t, err)
	child, err := scale.New(0)
	require.NoError(t, err)
	assert.Equal(t, "pool-", prefix)
	assert.Equal(t, []string{"pool-x"}, scale.Names)
	assert.Equal(t, "pool-", child.GenerateName)

	t.Run("of pods from a template", func(t *testing.T) {
		t.Parallel()
		spec, err := replicas.ReplicaSetSpec(replicaSet(1))
		require.NoError(t, err)
		spec.BaseName, spec.Facts.Now = "pool", workerSpec(1).Facts.Now
		scale, err := replicas.ScaleTo(nil, spec)
		require.NoError(t, err)
		assert.Equal(t, "pool-", newPod(t, scale).GenerateName)
	})
	t.Run("that no name can begin with is refused", func(t *testing.T) {
		t.Parallel()
		spec := workerSpec(1)
		spec.BaseName = "Pool_1"
		_, err := replicas.ScaleTo[*worker](nil, spec)
		require.ErrorContains(t, err, `"default/web"`)
		require.ErrorContains(t, err, `base name "Pool_1"`)
	})
}
