// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/podtest"
)

// fleets returns 5,000 pods as they come, in their order, and the other way round.
func fleets() map[string][]*corev1.Pod {
	pods := podtest.Fleet(5000, 100, 1)
	r := newRanking(pods, PodOptions{Now: podtest.Now})
	slices.SortFunc(r.places, r.compare)
	var sorted []*corev1.Pod
	for _, i := range r.places {
		sorted = append(sorted, pods[i])
	}
	reversed := slices.Clone(sorted)
	slices.Reverse(reversed)
	return map[string][]*corev1.Pod{"as they come": pods, "sorted": sorted, "reversed": reversed}
}

func TestFewArePickedOut(t *testing.T) {
	t.Parallel()
	for name, pods := range fleets() {
		t.Run("W29 of pods "+name+" few more are sorted than are asked for", func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{1, 37, 500, 2500, 4900, 4936, 4999, 5000} {
				whole, r := newRanking(pods, PodOptions{Now: podtest.Now}), newRanking(pods, PodOptions{Now: podtest.Now})
				slices.SortFunc(whole.places, whole.compare)
				got := r.smallest(n)
				require.GreaterOrEqual(t, len(got), n)
				assert.LessOrEqual(t, len(got), n+sampleSize)
				assert.Equal(t, whole.places[:len(got)], got, n)
			}
		})
		t.Run("W29 pods "+name+" are parted a little behind where they should be", func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{65, 127, 128, 320, 5000} {
				for n := 1; n < size*3/4; n += size / 30 {
					r := newRanking(pods[:size], PodOptions{Now: podtest.Now})
					middle := r.partition(r.places, n)
					what := fmt.Sprintf("%d of %d: %d", n, size, middle)
					for _, i := range r.places[:middle] {
						require.Negative(t, r.compare(i, r.places[middle]), what)
					}
					for _, i := range r.places[middle+1:] {
						require.Positive(t, r.compare(i, r.places[middle]), what)
					}
					if size%sampleSize < 10 && size > 65 { // the sample comes from everywhere
						assert.InDelta(t, n+4*size/sampleSize, middle, float64(size)/8, what)
					}
				}
			}
		})
	}
}
