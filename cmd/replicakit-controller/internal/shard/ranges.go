// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Ranges are a partition of the hash space: each hash is in exactly one of them.
// They are sorted.
type Ranges []Range

// Parse reads a list such as 0x0-0x8000000000000000,0x8000000000000000-0x10000000000000000:
// start-end, of which the end is not included; hexadecimal; in any order. The
// ranges must cover the whole hash space, and none of it twice.
func Parse(text string) (Ranges, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("no ranges")
	}
	var ranges Ranges
	for part := range strings.SplitSeq(text, ",") {
		r, err := parseRange(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("range %q: %w", part, err)
		}
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last)) })
	return ranges, ranges.check()
}

func parseRange(text string) (Range, error) {
	start, end, found := strings.Cut(text, "-")
	if !found {
		return Range{}, errors.New("must be start-end, such as 0x0-0x8000000000000000")
	}
	first, err := parseHash(start)
	if err != nil {
		return Range{}, fmt.Errorf("start: %w", err)
	}
	if end == pastTheLast {
		return Range{first, math.MaxUint64}, nil
	}
	after, err := parseHash(end)
	if err != nil {
		return Range{}, fmt.Errorf("end: %w", err)
	}
	if after <= first {
		return Range{}, errors.New("is empty: the end is not after the start")
	}
	return Range{first, after - 1}, nil
}

func parseHash(text string) (uint64, error) {
	digits, found := strings.CutPrefix(text, "0x")
	if !found {
		return 0, fmt.Errorf("%q does not begin with 0x", text)
	}
	hash, err := strconv.ParseUint(digits, 16, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%q is more than %s", text, pastTheLast)
	case err != nil:
		return 0, fmt.Errorf("%q is no hexadecimal number", text)
	}
	return hash, nil
}

// check finds the first gap or overlap of sorted ranges.
func (rs Ranges) check() error {
	if rs[0].First != 0 {
		return gap(Range{0, rs[0].First - 1})
	}
	for i, r := range rs[1:] {
		before := rs[i]
		if r.First <= before.Last {
			return fmt.Errorf("%v and %v overlap", before, r)
		}
		if r.First-1 != before.Last {
			return gap(Range{before.Last + 1, r.First - 1})
		}
	}
	if last := rs[len(rs)-1].Last; last != math.MaxUint64 {
		return gap(Range{last + 1, math.MaxUint64})
	}
	return nil
}

func gap(r Range) error { return fmt.Errorf("%v is in no range", r) }

// String is what Parse reads.
func (rs Ranges) String() string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.String()
	}
	return strings.Join(texts, ",")
}

// Of returns the place of the range that contains the namespace.
func (rs Ranges) Of(namespace string) int {
	hash := Hash(namespace)
	i, _ := slices.BinarySearchFunc(rs, hash, func(r Range, hash uint64) int { return cmp.Compare(r.Last, hash) })
	return i
}

// Fingerprint is the same for two partitions only if they are the same, as far as
// 64 bits can tell.
func (rs Ranges) Fingerprint() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(rs.String())) // never fails
	return fmt.Sprintf("%d-%016x", len(rs), h.Sum64())
}
