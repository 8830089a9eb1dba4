// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest/internal/chaos"
)

// A pass is decided by what it was told and answered, and by nothing else: each pass of a
// story, written and read again, makes the same calls.
func TestEachPassCanBePlayedAgain(t *testing.T) {
	t.Parallel()
	passes, interrupted, calls := 0, 0, map[string]int{}
	for seed := range share(t, 20) {
		seed++
		what := chaos.Generate(seed)
		if seed%2 == 0 {
			what = chaos.Tell(int(seed)%chaos.Scenes(), seed)
		}
		result := chaos.RunRecorded(seed, what, func(is controller.Recording, again func(controller.Recording) error) {
			text, err := json.Marshal(is)
			require.NoError(t, err)
			var read controller.Recording
			require.NoError(t, json.Unmarshal(text, &read))
			err = again(read)
			if errors.Is(err, controller.ErrInterrupted) {
				interrupted++
				return
			}
			if passes++; err != nil {
				t.Fatalf("seed %d, pass %d: %v\nthe calls were %v\n%s", seed, passes, err, is.Calls, text)
			}
			for _, c := range is.Calls {
				calls[c.Verb]++
			}
		})
		require.NoError(t, result.Err, "seed %d", seed)
	}
	for _, verb := range []string{"Create", "Delete", "Patch", "Get", "List", "GetOwner", "UpdateStatus", "ServerOwnersVersion"} {
		assert.Positive(t, calls[verb], verb)
	}
	if share(t, 20) == 20 {
		assert.Positive(t, interrupted)
	}
	t.Logf("figures: %d passes, %d interrupted, %v", passes, interrupted, calls)
}
