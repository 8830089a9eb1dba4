// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/sim/chaos"
)

func TestAFailureIsKeptInOneLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "known")
	require.NoError(t, os.WriteFile(file, []byte("# seeds\n"), 0o600))
	broken := func(seed uint64, text string, spoil func(*podController)) error {
		story, err := chaos.Parse(text)
		require.NoError(t, err)
		return chaos.RunSpoiled(seed, story, spoil).Err
	}
	asleep := broken(2, "scale 2 0 0s; run 0 0 20s; select 3 0 0s; run 0 0 1m", blinkered)
	twice := broken(1, "scale 2 0 0s; run 0 0 20s; scale 6 0 0s; run 0 0 60ms; snapshot 0 0 0s; run 0 0 20s; behind 0 0 5s; run 0 0 1m", believing)
	assert.Equal(t, "for more than five minutes, there are too few or too many children", chaos.Harm(asleep))
	assert.Equal(t, "a child is doubled", chaos.Harm(twice))
	assert.Empty(t, chaos.Harm(nil))
	for seed, err := range []error{errors.New("this\n\tand that"), asleep} {
		require.NoError(t, chaos.Keep(file, uint64(seed), err))
	}
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(kept), "# seeds\n0: harm that no rule names: this and that\n1: for more than five minutes, there are too few or too many children: ")
	require.Error(t, chaos.Keep(file+" elsewhere", 3, asleep))
	known, err := chaos.Known(file)
	require.NoError(t, err)
	assert.Equal(t, sets.New[uint64](0, 1), known)
	_, err = chaos.Known(file + " elsewhere")
	require.Error(t, err)
}
