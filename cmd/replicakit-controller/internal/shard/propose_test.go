// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/internal/shard"
)

// shares returns what falls to each range.
func shares(ranges shard.Ranges, weights map[string]int) []int {
	sum := make([]int, len(ranges))
	for namespace, weight := range weights {
		sum[ranges.Of(namespace)] += weight
	}
	return sum
}

func TestPropose(t *testing.T) {
	t.Parallel()
	t.Run("names that differ in their last letters only fall close together", func(t *testing.T) {
		t.Parallel()
		weights := map[string]int{}
		for i := range 100 {
			weights[fmt.Sprintf("tenant-%03d", i)] = 10
		}
		halves, err := shard.Parse(half)
		require.NoError(t, err)
		assert.Greater(t, slices.Max(shares(halves, weights)), 600)
		ranges, err := shard.Propose(weights, 4)
		require.NoError(t, err)
		assert.Equal(t, []int{250, 250, 250, 250}, shares(ranges, weights))
	})
	t.Run("one heavy namespace has a range of its own", func(t *testing.T) {
		t.Parallel()
		weights := map[string]int{"heavy": 100, "a": 1, "b": 1, "c": 1, "d": 1}
		ranges, err := shard.Propose(weights, 3)
		require.NoError(t, err)
		assert.Equal(t, 100, slices.Max(shares(ranges, weights)))
	})
	t.Run("negative weights are none", func(t *testing.T) {
		t.Parallel()
		ranges, err := shard.Propose(map[string]int{"a": -1, "b": -5}, 2)
		require.NoError(t, err)
		assert.Len(t, ranges, 2)
	})
	for _, row := range []struct {
		name string
		n    int
		of   map[string]int
		want string
	}{
		{"no ranges", 0, map[string]int{"a": 1}, "0 ranges for 1 namespaces"},
		{"fewer than none", -1, map[string]int{"a": 1}, "-1 ranges for 1 namespaces"},
		{"more than namespaces", 3, map[string]int{"a": 1, "b": 1}, "3 ranges for 2 namespaces: want at least one range, and a namespace for each"},
		{"no namespaces", 1, nil, "1 ranges for 0 namespaces"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := shard.Propose(row.of, row.n)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// best is the slow twin: the smallest largest share of all divisions into n parts.
func best(weights []int, n int) int {
	if n == 1 {
		sum := 0
		for _, w := range weights {
			sum += w
		}
		return sum
	}
	least, first := math.MaxInt, 0
	for i := 1; i <= len(weights)-n+1; i++ {
		first += weights[i-1]
		least = min(least, max(first, best(weights[i:], n-1)))
	}
	return least
}

func TestProposeIsAsGoodAsAnyDivision(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		weights := map[string]int{}
		for range 1 + r.IntN(9) {
			weights[fmt.Sprint("ns-", r.Uint64())] = r.IntN(1 + r.IntN(50))
		}
		n := 1 + r.IntN(len(weights))
		ranges, err := shard.Propose(weights, n)
		require.NoError(t, err)
		require.Len(t, ranges, n)
		parsed, err := shard.Parse(ranges.String())
		require.NoError(t, err, "a partition")
		require.Equal(t, ranges, parsed)
		names := make([]string, 0, len(weights))
		for name := range weights {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			if shard.Hash(a) < shard.Hash(b) {
				return -1
			}
			return 1
		})
		var inOrder []int
		for _, name := range names {
			inOrder = append(inOrder, weights[name])
		}
		require.Equal(t, best(inOrder, n), slices.Max(shares(ranges, weights)), "%v in %d", inOrder, n)
	}
}
