// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
)

// Propose returns n ranges of which the largest share is as small as it can be:
// weights say how much each namespace weighs. Negative weights count as 0. Each
// range has a namespace at least, and ends midway to the next one.
func Propose(weights map[string]int, n int) (Ranges, error) {
	places := placesOf(weights)
	if n < 1 || n > len(places) {
		return nil, fmt.Errorf("%d ranges for %d namespaces: want at least one range, and a namespace for each", n, len(places))
	}
	total := 0
	for _, p := range places {
		total += p.weight
	}
	most := sort.Search(total, func(most int) bool { return divide(places, n, most) != nil })
	var ranges Ranges
	first := uint64(0)
	for _, end := range divide(places, n, most) {
		r := Range{first, math.MaxUint64}
		if end < len(places) {
			before, after := places[end-1].hash, places[end].hash
			r.Last = before + (after-before-1)/2
			first = r.Last + 1
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// A place is a hash with what the namespaces weigh that have it.
type place struct {
	hash   uint64
	weight int
}

func placesOf(weights map[string]int) []place {
	at := map[uint64]int{}
	for namespace, weight := range weights {
		at[Hash(namespace)] += max(weight, 0)
	}
	places := make([]place, 0, len(at))
	for hash, weight := range maps.All(at) {
		places = append(places, place{hash, weight})
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.hash, b.hash) })
	return places
}

// divide cuts the places into n parts that weigh most at most, and returns where
// each part ends; nil: there is no such division. Each part takes as much as it
// may, and leaves one place to each part after it.
func divide(places []place, n, most int) (ends []int) {
	end := 0
	for part := 1; part <= n; part++ {
		weight, begin := 0, end
		for end < len(places)-(n-part) && weight+places[end].weight <= most {
			weight += places[end].weight
			end++
		}
		if end == begin {
			return nil
		}
		ends = append(ends, end)
	}
	if end < len(places) {
		return nil
	}
	return ends
}
