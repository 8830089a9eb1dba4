// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/replicakit/replicakit/replicas"
)

func TestPaused(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	pods, paused, original := podsOf(r.owner, 2), true, r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		spec, err := original(rs)
		spec.Paused = paused
		return spec, err
	}
	pass, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	assert.Empty(t, pass.Created, "paused")
	require.NotNil(t, pass.Status)
	assert.EqualValues(t, 2, pass.Status.Status.Replicas, "the status goes on")

	paused = false
	pass, err = r.pass(t, 1, pods...)
	require.NoError(t, err)
	assert.Len(t, pass.Created, 1, "no longer paused")
}
