// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/internal/shard"
)

// Kubernetes' own package is the slow twin: it compares hexadecimal texts.

func TestHash(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]uint64{ // FNV-1a, 64 bits
		"":        0xcbf29ce484222325,
		"a":       0xaf63dc4c8601ec8c,
		"foobar":  0x85944171f73967e8,
		"default": 0xebada5168620c5fe,
	} {
		assert.Equal(t, want, shard.Hash(namespace), namespace)
		assert.Equal(t, sharding.HashField(namespace), fmt.Sprintf("%016x", shard.Hash(namespace)), namespace)
	}
}

const half = "0x0-0x8000000000000000,0x8000000000000000-0x10000000000000000"

func TestParse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		want       shard.Ranges
	}{
		{"the whole", "0x0-0x10000000000000000", shard.Ranges{shard.Whole}},
		{"two halves", half, shard.Ranges{{0, math.MaxInt64}, {1 << 63, math.MaxUint64}}},
		{"in any order, with blanks", "0x8000000000000000-0x10000000000000000, 0x0-0x8000000000000000", shard.Ranges{{0, math.MaxInt64}, {1 << 63, math.MaxUint64}}},
		{"single hashes, with all digits", "0x0000000000000000-0x0000000000000001,0x1-0xffffffffffffffff,0xffffffffffffffff-0x10000000000000000", shard.Ranges{{0, 0}, {1, math.MaxUint64 - 1}, {math.MaxUint64, math.MaxUint64}}},
		{"capital letters", "0x0-0xAB,0xab-0x10000000000000000", shard.Ranges{{0, 0xaa}, {0xab, math.MaxUint64}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := shard.Parse(row.text)
			require.NoError(t, err)
			assert.Equal(t, row.want, got)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"nothing", "", "no ranges"},
		{"blanks", "  ", "no ranges"},
		{"an empty part", "0x0-0x10000000000000000,", `range "": must be start-end`},
		{"no end", "0x0", `range "0x0": must be start-end, such as 0x0-0x8000000000000000`},
		{"no start", "-0x1", `range "-0x1": start: "" does not begin with 0x`},
		{"decimal", "0-10", `range "0-10": start: "0" does not begin with 0x`},
		{"no hexadecimal number", "0xhello-0x1", `start: "0xhello" is no hexadecimal number`},
		{"a second end", "0x0-0x1-0x2", `end: "0x1-0x2" is no hexadecimal number`},
		{"no digits", "0x0-0x", `end: "0x" is no hexadecimal number`},
		{"a sign", "0x+1-0x2", `start: "0x+1" is no hexadecimal number`},
		{"too large", "0x0-0x10000000000000001", `end: "0x10000000000000001" is more than 0x10000000000000000`},
		{"empty", "0x1-0x1", `range "0x1-0x1": is empty: the end is not after the start`},
		{"backwards", "0x2-0x1", "is empty"},
		{"a gap at the start", "0x1-0x10000000000000000", "0x0000000000000000-0x0000000000000001 is in no range"},
		{"a gap in the middle", "0x0-0x5,0x8-0x10000000000000000", "0x0000000000000005-0x0000000000000008 is in no range"},
		{"a gap at the end", "0x0-0xffffffffffffffff", "0xffffffffffffffff-0x10000000000000000 is in no range"},
		{"an overlap", "0x0-0x6,0x5-0x10000000000000000", "0x0000000000000000-0x0000000000000006 and 0x0000000000000005-0x10000000000000000 overlap"},
		{"the same twice", "0x0-0x10000000000000000,0x0-0x10000000000000000", "overlap"},
		{"an overlap with the end of all", "0x0-0x10000000000000000,0xffffffffffffffff-0x10000000000000000", "overlap"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := shard.Parse(row.text)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// partition returns n random ranges.
func partition(r *rand.Rand, n int) shard.Ranges {
	cuts := map[uint64]bool{}
	for len(cuts) < n-1 {
		cuts[1+r.Uint64N(math.MaxUint64)] = true
	}
	ranges := shard.Ranges{shard.Whole}
	for cut := range cuts {
		for i, whole := range ranges {
			if whole.First < cut && cut <= whole.Last {
				ranges[i].Last = cut - 1
				ranges = append(ranges, shard.Range{First: cut, Last: whole.Last})
				break
			}
		}
	}
	parsed, err := shard.Parse(ranges.String())
	if err != nil {
		panic(err)
	}
	return parsed
}

func TestEachNamespaceIsInOneRange(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ranges := partition(r, 1+r.IntN(20))
		for range 50 {
			namespace := strconv.FormatUint(r.Uint64(), 36)
			hash := "0x" + sharding.HashField(namespace)
			var in []int
			for i, one := range ranges {
				start, end, _ := strings.Cut(one.String(), "-")
				theirs := !sharding.HexLess(hash, start) && sharding.HexLess(hash, end)
				require.Equal(t, theirs, one.Contains(namespace))
				if theirs {
					in = append(in, i)
				}
			}
			require.Equal(t, []int{ranges.Of(namespace)}, in)
		}
	}
	assert.False(t, shard.Whole.Contains(""), "what has no namespace is in no range")
	at := shard.Hash("default")
	for _, row := range []struct {
		shard.Range
		want bool
	}{
		{shard.Range{First: at, Last: at}, true},
		{shard.Range{First: at, Last: at + 1}, true},
		{shard.Range{First: at - 1, Last: at}, true},
		{shard.Range{First: at + 1, Last: at + 2}, false},
		{shard.Range{First: at - 2, Last: at - 1}, false},
	} {
		assert.Equal(t, row.want, row.Contains("default"), row.Range)
	}
}

func TestSelector(t *testing.T) {
	t.Parallel()
	ranges, err := shard.Parse(half)
	require.NoError(t, err)
	assert.Equal(t, "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')", ranges[0].Selector())
	assert.Equal(t, "shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')", ranges[1].Selector())
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	ranges, err := shard.Parse(half)
	require.NoError(t, err)
	again, err := shard.Parse("0x8000000000000000-0x10000000000000000,0x0-0x8000000000000000")
	require.NoError(t, err)
	assert.Equal(t, ranges.Fingerprint(), again.Fingerprint())
	seen := map[string]bool{}
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		seen[partition(r, 2).Fingerprint()] = true
	}
	assert.Len(t, seen, 1000)
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", half, "0x0-0x10000000000000000", "0x0-0x5,0x5-0x10000000000000000", "0x0-0x6,0x5-0x10000000000000000", "0x-", "0xffffffffffffffff-0x10000000000000000"} {
		f.Add(text, "default")
	}
	f.Fuzz(func(t *testing.T, text, namespace string) {
		ranges, err := shard.Parse(text)
		if err != nil {
			return
		}
		again, err := shard.Parse(ranges.String())
		require.NoError(t, err)
		require.Equal(t, ranges, again)
		n := 0
		for _, r := range ranges {
			if r.Contains(namespace) {
				n++
			}
		}
		if namespace != "" {
			require.Equal(t, 1, n)
			require.True(t, ranges[ranges.Of(namespace)].Contains(namespace))
		}
	})
}
