// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/replicakit/replicakit/internal/backoff"
)

func TestHold(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	var h backoff.Hold
	assert.LessOrEqual(t, h.Remaining(now), time.Duration(0), "none")
	for _, want := range []time.Duration{2, 4, 8, 10, 10} {
		h.Double(now, 2*time.Second, 10*time.Second)
		assert.Equal(t, want*time.Second, h.Remaining(now))
	}
	assert.Equal(t, 4*time.Second, h.Remaining(now.Add(6*time.Second)))
	assert.Equal(t, -time.Second, h.Remaining(now.Add(11*time.Second)))
	back := now.Add(-time.Hour)
	assert.Equal(t, 10*time.Second, h.Remaining(back), "it starts again")
	assert.Equal(t, 7*time.Second, h.Remaining(back.Add(3*time.Second)), "and does not wait for the hour")
}
