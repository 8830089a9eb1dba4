// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package distinct_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/internal/distinct"
)

func TestEntriesAreFoundByTheirStrings(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for name, text := range map[string]func(i int) string{
		"all different": strconv.Itoa,
		"all equal":     func(int) string { return "node-1" },
		"few":           func(i int) string { return strconv.Itoa(i % 7) },
		"many":          func(int) string { return strconv.Itoa(r.IntN(1000)) },
		"empty, too":    func(i int) string { return []string{"", "a", "\x00", "a\x00"}[i%4] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{0, 1, 2, 3, 1000} {
				texts := make([]string, n)
				for i := range texts {
					texts[i] = text(i)
				}
				table := distinct.New(n, func(i int) string { return texts[i] })
				assert.Equal(t, -1, table.Find("x"))
				for i, s := range texts {
					require.Equal(t, slices.Index(texts, s), table.Add(i, s), "the first of %q", s)
				}
				for _, s := range texts {
					require.Equal(t, slices.Index(texts, s), table.Find(s))
				}
				assert.Equal(t, -1, table.Find("x"))
			}
		})
	}
}

//nolint:paralleltest // AllocsPerRun counts the allocations of other tests too
func TestATableNeverGrows(t *testing.T) {
	texts := make([]string, 5000)
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	assert.LessOrEqual(t, testing.AllocsPerRun(5, func() {
		table := distinct.New(len(texts), func(i int) string { return texts[i] })
		for i := range texts {
			table.Add(i, texts[i])
		}
	}), 3.0, "the table, its slots and the function")
}
