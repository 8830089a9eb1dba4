// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Owners that wait for the same watch or for the same list do not all ask the server at the same moment.
func TestWhatIsSpread(t *testing.T) {
	t.Parallel()
	// last returns a rig in which the generated names count up, as in other tests. All other random numbers are
	// the largest possible ones.
	last := func() *podRig {
		const letters = 27
		r := newRig(1)
		r.opts.Random = func(n int) int {
			if n == letters {
				return r.random(n)
			}
			return n - 1
		}
		return r
	}
	t.Run("W13 an expectation expires up to a tenth later", func(t *testing.T) {
		t.Parallel()
		r := last()
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, 5*time.Minute+30*time.Second, pass.RequeueAfter.Round(time.Second))
		short := last()
		short.opts.ExpectationsTimeout = 10 * time.Second
		pass, err = short.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, 11*time.Second, pass.RequeueAfter.Round(time.Second))
	})
	t.Run("a list that failed is made again after a second, as two lists at once need no spreading", func(t *testing.T) {
		t.Parallel()
		r := last()
		r.awaits(r.owner, "web-lost")
		pass, err := r.pass(t, 331)
		require.ErrorContains(t, err, "no list was expected")
		assert.Equal(t, time.Second, pass.RequeueAfter)
	})
}
