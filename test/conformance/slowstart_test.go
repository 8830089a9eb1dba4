// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A slowStart is one slow start. Its calls are numbered in the order in which they are made. Failing contains the
// numbers of the calls that fail. Within one batch, the calls are made in any order, but each batch consists of the
// calls with the same numbers on both sides.
type slowStart struct {
	Count, Initial int
	Failing        map[int]bool
	MaxParallel    int
}

func newStart(g *gen) slowStart {
	c := slowStart{Count: g.IntN(40) - 2, Initial: g.IntN(12) - 1, MaxParallel: pick(g, 0, 1, 3)}
	if g.in(2) {
		c.Initial = 1
	}
	if g.in(50) {
		c.Count = 500
	}
	if !g.in(4) {
		c.Failing = map[int]bool{}
		for range 1 + g.IntN(3) {
			c.Failing[g.IntN(max(c.Count, 0)+2)] = true
		}
	}
	return c
}

type startOutcome struct {
	calls, successes int
	err              error
}

// counted runs a slow start and counts its calls. A call fails if its number is in Failing.
func (c slowStart) counted(run func(call func() error) (int, error)) startOutcome {
	var calls atomic.Int64
	successes, err := run(func() error {
		if n := int(calls.Add(1)) - 1; c.Failing[n] {
			return callError(n)
		}
		return nil
	})
	return startOutcome{int(calls.Load()), successes, err}
}

type callError int

func (e callError) Error() string { return fmt.Sprintf("call %d", int(e)) }

func (c slowStart) theirs() startOutcome {
	return c.counted(func(call func() error) (int, error) { return upstream.SlowStartBatch(c.Count, c.Initial, call) })
}

func TestSlowStart(t *testing.T) {
	t.Parallel()
	const refused = "W24: an initial batch size below 1 is refused, not a success without a call"
	t.Run("S1 S3 S4 S5 S6 S7 S8 W24 as many calls are made and succeed, and Kubernetes' error is among ours", func(t *testing.T) {
		t.Parallel()
		comparison[slowStart]{
			cases: 50_000, of: "slow starts",
			input: newStart,
			differ: func(c slowStart, named *tally) string {
				theirs := c.theirs()
				batch := c.counted(func(call func() error) (int, error) {
					return slowstart.Batch(context.Background(), c.Count, c.Initial, func(context.Context, int) error { return call() })
				})
				if c.Initial < 1 && c.Count > 0 {
					if batch.err == nil || batch.calls+theirs.calls > 0 {
						return fmt.Sprintf("Kubernetes: %v, ours: %v", theirs, batch)
					}
					named.add(refused)
					return ""
				}
				run := c.counted(func(call func() error) (int, error) {
					opts := slowstart.Options{InitialBatchSize: max(c.Initial, 0), MaxParallel: c.MaxParallel}
					r := slowstart.Run(context.Background(), c.Count, opts, func(context.Context, int) error { return call() })
					if n := len(r.Succeeded) + len(r.Failed) + r.Skipped; n != max(c.Count, 0) {
						return 0, fmt.Errorf("%d of %d calls are accounted for", n, c.Count)
					}
					return len(r.Succeeded), r.Err
				})
				return cmpStarts(theirs, batch) + cmpStarts(theirs, run)
			},
			names: []string{refused},
		}.run(t)
	})
	t.Run("S3 five calls of ten succeed: seven are made", func(t *testing.T) {
		t.Parallel()
		c := slowStart{Count: 10, Initial: 1, Failing: map[int]bool{5: true, 6: true, 7: true, 8: true, 9: true}}
		ours := c.counted(func(call func() error) (int, error) {
			return slowstart.Batch(t.Context(), c.Count, c.Initial, func(context.Context, int) error { return call() })
		})
		assert.Equal(t, [2]int{7, 5}, [2]int{ours.calls, ours.successes})
		assert.Empty(t, cmpStarts(c.theirs(), ours))
	})
}

func cmpStarts(theirs, ours startOutcome) string {
	same := theirs.calls == ours.calls && theirs.successes == ours.successes && (theirs.err == nil) == (ours.err == nil)
	if same && errors.Is(ours.err, theirs.err) {
		return ""
	}
	return fmt.Sprintf("calls, successes, error: Kubernetes: %v, ours: %v\n", theirs, ours)
}
