// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	apimachinery "k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// Our comparison of resourceVersions returns the same results as the function of apimachinery. The root module
// cannot import this function, because the module also supports apimachinery before 0.35, which lacks the
// function.
func TestResourceVersions(t *testing.T) {
	t.Parallel()
	t.Run("X7 two versions are older, equal or newer, or no versions, as apimachinery says", func(t *testing.T) {
		t.Parallel()
		type pair struct{ A, B string }
		comparison[pair]{
			cases: 200_000, of: "pairs of versions",
			input: func(g *gen) pair {
				version := func() string {
					var b strings.Builder
					for range g.IntN(24) {
						b.WriteString(pick(g, "0", "1", "5", "9"))
					}
					if g.in(8) {
						b.WriteString(pick(g, "-", "+", " ", "x", "٣"))
					}
					return b.String()
				}
				c := pair{A: version(), B: version()}
				if g.in(2) { // the two versions have the same beginning
					c.B = c.A[:g.IntN(len(c.A)+1)] + pick(g, "", "", "1", "9")
				}
				return c
			},
			differ: func(c pair, named *tally) string {
				theirs, theirErr := apimachinery.CompareResourceVersion(c.A, c.B)
				ours, ourErr := resourceversion.Compare(c.A, c.B)
				older, reached := resourceversion.Older(c.A, c.B), resourceversion.Reached(c.A, c.B)
				if ours != theirs || (ourErr == nil) != (theirErr == nil) || older != (theirs < 0) || reached != (theirErr == nil && theirs >= 0) {
					return fmt.Sprintf("Kubernetes: %d, %v; ours: %d, %v, older: %t, reached: %t", theirs, theirErr, ours, ourErr, older, reached)
				}
				if theirErr == nil {
					named.reach(map[int]string{-1: "older", 0: "equal", 1: "newer"}[theirs])
				} else {
					named.reach("one is no version")
				}
				return ""
			},
			reaches: []string{"one is no version", "older", "equal", "newer"},
		}.run(t)
	})
}
