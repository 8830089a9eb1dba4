// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceversion_test

import (
	"math/big"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

var decimal = regexp.MustCompile(`^[1-9][0-9]*$`)

// FuzzCompare compares the results of Compare with those of math/big.
func FuzzCompare(f *testing.F) {
	for _, a := range []string{"", "0", "1", "9", "10", "007", "-1", "+1", " 1", "1e3", "12a", "٣", "99999999999999999998", "99999999999999999999", "100000000000000000000"} {
		f.Add(a, "10")
		f.Add("99999999999999999999", a)
		f.Add(a, a)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		order, err := resourceversion.Compare(a, b)
		if !decimal.MatchString(a) || !decimal.MatchString(b) {
			require.Error(t, err, "X7 %q, %q", a, b)
			require.Zero(t, order)
			return
		}
		require.NoError(t, err, "X7 %q, %q", a, b)
		x, _ := new(big.Int).SetString(a, 10)
		y, _ := new(big.Int).SetString(b, 10)
		require.Equal(t, x.Cmp(y), order, "X7 %q, %q", a, b)
		again, _ := resourceversion.Compare(b, a)
		require.Equal(t, -order, again)
	})
}

func TestOlderAndReached(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b           string
		older, reached bool
	}{
		{"9", "10", true, false},
		{"10", "10", false, true},
		{"11", "10", false, true},
		{"", "10", false, false},
		{"10", "", false, false},
		{"x", "10", false, false},
	} {
		require.Equal(t, tc.older, resourceversion.Older(tc.a, tc.b), "%q, %q", tc.a, tc.b)
		require.Equal(t, tc.reached, resourceversion.Reached(tc.a, tc.b), "%q, %q", tc.a, tc.b)
	}
}
