// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If the watch of pods hangs for six hours, the controller still creates exactly three pods.
func TestHang(t *testing.T) {
	t.Parallel()
	s, err := newStory()
	require.NoError(t, err)
	s.keeper.view.ChildWatch.Hang()
	s.scale(3)
	s.wait(6 * time.Hour)
	require.NoError(t, s.err)
	assert.Equal(t, 3, s.calls["create"])
	assert.Len(t, s.cluster.Children(namespace), 3)
	require.NoError(t, s.keeper.view.Intact())
}
