// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/replicas/ledger"
)

func cacheOf(n int) ledger.Snapshot[kid] {
	s := ledger.Snapshot[kid]{Version: "99999", Rules: rules}
	for i := range n {
		s.Children = append(s.Children, kidOf(fmt.Sprintf("web-%05d@%d", i, i+1)))
	}
	return s
}

// If the Ledger contains no facts, View allocates no memory, even if there are many children.
func TestViewAllocatesNothingIfNothingIsKnown(t *testing.T) { //nolint:paralleltest // it counts allocations
	s := cacheOf(1000)
	var known ledger.Ledger[kid]
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_, err := known.View(known.Start(), s, began)
		if err != nil || known.RequeueAfter(began) != 0 {
			panic(err)
		}
		known.Done()
	}))
}

func BenchmarkView(b *testing.B) {
	for _, bm := range []struct{ children, facts int }{{3, 0}, {1000, 0}, {10_000, 0}, {10_000, 1}, {10_000, 500}} {
		b.Run(fmt.Sprintf("children=%d/facts=%d", bm.children, bm.facts), func(b *testing.B) {
			s := cacheOf(bm.children)
			var known ledger.Ledger[kid]
			for i := range bm.facts {
				require.NoError(b, known.Observe(known.Start(), kidOf(fmt.Sprintf("new-%05d@%d", i, 100_000+i)), began))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := known.View(known.Start(), s, began); err != nil {
					b.Fatal(err)
				}
				known.Done()
			}
		})
	}
}
