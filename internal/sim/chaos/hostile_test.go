// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/internal/sim/chaos"
)

// Webhooks, clocks and failing reads are against the controller. It neither creates pods without end nor deletes pods
// that had time left to become ready.
func TestHostileStories(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		seed  uint64
		story string
		fault string
	}{
		"a webhook takes the owner from new pods": {1, "scale 3 0 0s; run 0 0 20s; take-owner 0 0 0s; scale 6 0 0s; run 0 0 30m", "take-owner"},
		"and the answers are lost":                {1, "take-owner 0 0 0s; no-answer 0 11 0s; scale 6 0 0s; run 0 0 30m", "failed calls"},
		"somebody takes it from pods that run":    {1, "scale 3 0 0s; run 0 0 20s; take-owner 0 1 0s; disown 1 0 0s; disown 2 0 0s; run 0 0 30m", "take-owner"},
		"the nodes' clocks are behind":            {7, "skew-nodes 0 0 0s; scale 6 0 0s; run 0 0 30m", "skew-nodes"},
		"the nodes' clocks are ahead":             {7, "skew-nodes 0 11 0s; scale 6 0 0s; run 0 0 30m", "skew-nodes"},
		"the owner is gone and cannot be read":    {1, "scale 6 0 0s; run 0 0 20s; hang-sets 0 0 0s; unread-owners 0 0 8s; delete-owner 0 0 0s; run 0 0 10m", "failed reads of owners"},
		"the owner is gone and must not be read":  {1, "scale 6 0 0s; run 0 0 20s; hang-sets 0 0 0s; unread-owners 0 1 8s; delete-owner 0 0 0s; run 0 0 10m", "failed reads of owners"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story, err := chaos.Parse(tt.story)
			require.NoError(t, err)
			report := chaos.Run(tt.seed, story)
			require.NoError(t, report.Err)
			assert.Positive(t, report.Faults[tt.fault])
		})
	}
}
