// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
)

// weights returns lists of weights in many shapes. Some shapes lead to even partitions, others to uneven
// partitions.
func weights() map[string][]weighed {
	r := rand.New(rand.NewPCG(1, 1))
	lists := map[string][]weighed{"a single one": {{}}}
	for name, weight := range map[string]func(i int) int64{
		"all different":   func(int) int64 { return r.Int64() - r.Int64() },
		"all equal":       func(int) int64 { return 7 },
		"of few values":   func(int) int64 { return r.Int64N(3) },
		"sorted already":  func(i int) int64 { return int64(i) },
		"the other way":   func(i int) int64 { return -int64(i) },
		"up and down":     func(i int) int64 { return int64(min(i, 1000-i)) },
		"one of the kind": func(i int) int64 { return int64(i / 999) },
	} {
		for i := range 1000 {
			lists[name] = append(lists[name], weighed{weight: weight(i), place: int32(i)})
		}
	}
	return lists
}

func TestObjectsAreParted(t *testing.T) {
	t.Parallel()
	for name, objs := range weights() {
		t.Run("into the lighter, the equal and the heavier: "+name, func(t *testing.T) {
			t.Parallel()
			for _, pivot := range []int64{objs[0].weight, objs[len(objs)/2].weight, -1 << 63, 1<<63 - 1} {
				parted := slices.Clone(objs)
				lower, equal := partition(parted, pivot)
				for i, o := range parted {
					want := -1
					if i >= lower {
						want = 0
					}
					if i >= equal {
						want = 1
					}
					require.Equal(t, want, cmp.Compare(o.weight, pivot), i)
				}
				assert.ElementsMatch(t, objs, parted)
			}
		})
	}
}

// The method sort gives the same result for any limit on partitions. If no partition is allowed, sort calls
// slices.SortFunc.
func TestWhatIsPartedBadlyIsSorted(t *testing.T) {
	t.Parallel()
	pods := podtest.Fleet(1000, 50, 1)
	for name, objs := range weights() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{1, 37, 500, 999, 1000} {
				var results [][]found
				for _, tries := range []int{0, 1, bits.Len(uint(len(objs)))} {
					r := &ranking[*corev1.Pod]{facts: Facts[*corev1.Pod]{Objects: pods}, want: min(n, len(objs))}
					r.steps = []step[*corev1.Pod]{{weigh: weighUID[*corev1.Pod]}}
					r.sort(slices.Clone(objs), 0, tries)
					results = append(results, r.found)
				}
				assert.Len(t, results[0], min(n, len(objs)))
				assert.Equal(t, results[0], results[1])
				assert.Equal(t, results[0], results[2])
				assert.True(t, slices.IsSortedFunc(results[0], func(a, b found) int { return cmp.Compare(objs[a.place].weight, objs[b.place].weight) }))
			}
		})
	}
}
