// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package slowstart_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/slowstart"
)

type call = func(ctx context.Context, i int) error

// fails returns a function that fails for the given indices. The error is different for each index.
func fails(indices ...int) call {
	return func(_ context.Context, i int) error {
		if slices.Contains(indices, i) {
			return callError(i)
		}
		return nil
	}
}

type callError int

func (e callError) Error() string { return fmt.Sprintf("call %d was refused", int(e)) }

func unreachable(context.Context, int) error { panic("not to be called") }

// indices returns the indices of the failed calls.
func indices(failed []slowstart.Failure) (indices []int) {
	for _, f := range failed {
		indices = append(indices, f.Index)
	}
	return indices
}

// upTo returns the integers from the first argument up to, but not including, the second argument. If there are no
// such integers, the result is nil.
func upTo(from, to int) (indices []int) {
	for i := from; i < to; i++ {
		indices = append(indices, i)
	}
	return indices
}

func TestBatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		count, initial int
		fn             call
		calls          int
		successes      int
		err            string
	}{
		"S3 the rest of the failing batch is made, no further batch": {
			count: 10, initial: 1, fn: fails(5, 6), calls: 7, successes: 5, err: "call 5 was refused\ncall 6 was refused",
		},
		"S4 calls that succeed beside the failing one count": {count: 10, initial: 1, fn: fails(3), calls: 7, successes: 6, err: "call 3 was refused"},
		"S5 all succeed":                                        {count: 10, initial: 1, fn: fails(), calls: 10, successes: 10},
		"S5 the first call fails":                               {count: 10, initial: 1, fn: fails(0), calls: 1, err: "call 0 was refused"},
		"S5 a larger first batch fails":                         {count: 10, initial: 3, fn: fails(0, 1, 2), calls: 3, err: "call 0 was refused\ncall 1 was refused\ncall 2 was refused"},
		"S5 only the last call fails":                           {count: 4, initial: 1, fn: fails(3), calls: 4, successes: 3, err: "call 3 was refused"},
		"S6 a count of 0 calls nothing":                         {count: 0, initial: 1, fn: unreachable},
		"S6 a negative count calls nothing":                     {count: -3, initial: 1, fn: unreachable},
		"S6 a count of 0 has no use for a batch size":           {count: 0, initial: 0, fn: unreachable},
		"S6 a count of 0 has no use for a function":             {count: 0, initial: 1},
		"W24 an initial batch size of 0 is refused":             {count: 7, initial: 0, fn: unreachable, err: "slowstart: initial batch size 0 is less than 1"},
		"W24 a negative initial batch size is refused":          {count: 7, initial: -1, fn: unreachable, err: "slowstart: initial batch size -1 is less than 1"},
		"S7 an initial batch size above the count is the count": {count: 7, initial: 100, fn: fails(2), calls: 7, successes: 6, err: "call 2 was refused"},
		"S7 the largest int as initial batch size":              {count: 7, initial: math.MaxInt, fn: fails(), calls: 7, successes: 7},
		"a nil function is refused":                             {count: 7, initial: 1, err: "slowstart: function is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			fn := tt.fn
			if fn != nil {
				fn = func(ctx context.Context, i int) error { calls.Add(1); return tt.fn(ctx, i) }
			}
			successes, err := slowstart.Batch(t.Context(), tt.count, tt.initial, fn)
			assert.Equal(t, tt.successes, successes)
			assert.EqualValues(t, tt.calls, calls.Load(), "calls")
			if tt.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.err)
		})
	}
}

// batches runs calls that take one virtual second each, and returns the number of calls that started in each
// second. Without MaxParallel, the results are the sizes of the batches.
func batches(t *testing.T, count int, opts slowstart.Options) (sizes []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		started := map[int]int{}
		result := slowstart.Run(t.Context(), count, opts, func(context.Context, int) error {
			mu.Lock()
			started[int(time.Since(begin)/time.Second)]++
			mu.Unlock()
			time.Sleep(time.Second)
			return nil
		})
		require.NoError(t, result.Err)
		for second := range len(started) {
			sizes = append(sizes, started[second])
		}
	})
	return sizes
}

func TestBatchSizes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		count int
		opts  slowstart.Options
		want  []int
	}{
		"S1 batches double, the last takes what is left":   {count: 10, want: []int{1, 2, 4, 3}},
		"S1 doubling starts from the initial batch size":   {count: 20, opts: slowstart.Options{InitialBatchSize: 3}, want: []int{3, 6, 11}},
		"S7 a first batch above the count is the count":    {count: 7, opts: slowstart.Options{InitialBatchSize: 100}, want: []int{7}},
		"S8 500 calls take nine batches":                   {count: 500, want: []int{1, 2, 4, 8, 16, 32, 64, 128, 245}},
		"S9 the initial batch size is 1 unless set":        {count: 2, want: []int{slowstart.DefaultInitialBatchSize, 1}},
		"W23 a cap above the batch size changes nothing":   {count: 10, opts: slowstart.Options{MaxParallel: 100}, want: []int{1, 2, 4, 3}},
		"W23 a cap of 3 makes the batch of 8 in 3 + 3 + 2": {count: 15, opts: slowstart.Options{MaxParallel: 3}, want: []int{1, 2, 3, 1, 3, 3, 2}},
		"W23 a cap of 1 makes one call after the other":    {count: 4, opts: slowstart.Options{MaxParallel: 1}, want: []int{1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, batches(t, tt.count, tt.opts))
		})
	}
}

func TestS2NextBatchWaits(t *testing.T) {
	t.Parallel()
	t.Run("S2 the next batch waits for the slowest call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			var mu sync.Mutex
			started := make([]time.Duration, 7)
			result := slowstart.Run(t.Context(), 7, slowstart.Options{}, func(_ context.Context, i int) error {
				mu.Lock()
				started[i] = time.Since(begin)
				mu.Unlock()
				time.Sleep(time.Duration(i+1) * time.Second)
				return nil
			})
			require.NoError(t, result.Err)
			// Call 0 takes 1 s, and calls 1 and 2 take 2 s and 3 s.
			assert.Equal(t, []time.Duration{
				0, time.Second, time.Second,
				4 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second,
			}, started)
			assert.Equal(t, 11*time.Second, time.Since(begin))
		})
	})
}

func TestResult(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		count     int
		opts      slowstart.Options
		fn        call
		succeeded []int
		failed    []int
		skipped   int
		err       string
	}{
		"S6 a count of 0 is the zero result":    {count: 0, fn: unreachable},
		"S6 a count below 0 is the zero result": {count: math.MinInt, opts: slowstart.Options{MaxParallel: -1}, fn: unreachable},
		"W22 each index is told":                {count: 3, fn: fails(), succeeded: []int{0, 1, 2}},
		"W22 succeeded, failed and skipped are told apart": {
			count: 20, fn: fails(4, 6, 9), succeeded: []int{0, 1, 2, 3, 5}, failed: []int{4, 6}, skipped: 13,
			err: "call 4 was refused\ncall 6 was refused",
		},
		"W22 inline calls are told in the same way": {
			count: 20, opts: slowstart.Options{MaxParallel: 1}, fn: fails(4, 6, 9), succeeded: []int{0, 1, 2, 3, 5}, failed: []int{4, 6}, skipped: 13,
			err: "call 4 was refused\ncall 6 was refused",
		},
		"W22 a count far above what is tried": {
			count: math.MaxInt, fn: fails(1), succeeded: []int{0, 2}, failed: []int{1}, skipped: math.MaxInt - 3, err: "call 1 was refused",
		},
		"W24 a negative initial batch size is refused": {
			count: 5, opts: slowstart.Options{InitialBatchSize: -1}, fn: unreachable, skipped: 5, err: "slowstart: initial batch size -1 is negative",
		},
		"W23 a negative cap is refused": {
			count: 5, opts: slowstart.Options{MaxParallel: -2}, fn: unreachable, skipped: 5, err: "slowstart: max parallel -2 is negative",
		},
		"a nil function is refused": {count: 5, skipped: 5, err: "slowstart: function is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := slowstart.Run(t.Context(), tt.count, tt.opts, tt.fn)
			assert.Equal(t, tt.succeeded, result.Succeeded, "succeeded")
			assert.Equal(t, tt.failed, indices(result.Failed), "failed")
			assert.Equal(t, tt.skipped, result.Skipped, "skipped")
			if tt.err == "" {
				require.NoError(t, result.Err)
				return
			}
			require.EqualError(t, result.Err, tt.err)
		})
	}
	t.Run("a nil context is refused", func(t *testing.T) {
		t.Parallel()
		var ctx context.Context
		result := slowstart.Run(ctx, 5, slowstart.Options{}, unreachable)
		require.EqualError(t, result.Err, "slowstart: context is nil")
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	t.Run("W20 errors come in index order, whatever the order of completion", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			result := slowstart.Run(t.Context(), 4, slowstart.Options{InitialBatchSize: 4}, func(_ context.Context, i int) error {
				time.Sleep(time.Duration(10-i) * time.Second)
				return callError(i)
			})
			require.EqualError(t, result.Err, "call 0 was refused\ncall 1 was refused\ncall 2 was refused\ncall 3 was refused")
			var first callError
			require.ErrorAs(t, result.Err, &first)
			assert.Equal(t, callError(0), first)
			assert.Equal(t, []int{0, 1, 2, 3}, indices(result.Failed))
		})
	})
	t.Run("W20 each error is found, the text is cut after ten", func(t *testing.T) {
		t.Parallel()
		result := slowstart.Run(t.Context(), 12, slowstart.Options{InitialBatchSize: 12}, func(_ context.Context, i int) error {
			return fmt.Errorf("pod %d: %w", i, callError(i))
		})
		for i := range 12 {
			require.ErrorIs(t, result.Err, callError(i))
		}
		lines := strings.Split(result.Err.Error(), "\n")
		require.Len(t, lines, 11)
		assert.Equal(t, "pod 9: call 9 was refused", lines[9])
		assert.Equal(t, "(2 more left out)", lines[10])
	})
	t.Run("W20 ten errors are shown whole", func(t *testing.T) {
		t.Parallel()
		_, err := slowstart.Batch(t.Context(), 10, 10, fails(upTo(0, 10)...))
		lines := strings.Split(err.Error(), "\n")
		assert.Len(t, lines, 10)
		assert.Equal(t, "call 9 was refused", lines[9])
	})
	t.Run("W20 an error keeps its type", func(t *testing.T) {
		t.Parallel()
		_, err := slowstart.Batch(t.Context(), 3, 3, func(_ context.Context, i int) error {
			if i == 2 {
				return &fs.PathError{Op: "create", Path: "pod", Err: fs.ErrPermission}
			}
			return nil
		})
		var pathErr *fs.PathError
		require.ErrorAs(t, err, &pathErr)
		require.ErrorIs(t, err, fs.ErrPermission)
	})
}

func TestContext(t *testing.T) {
	t.Parallel()
	t.Run("S12 W21 no batch starts once the context is done", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		result := slowstart.Run(ctx, 10, slowstart.Options{MaxParallel: 1}, func(_ context.Context, i int) error {
			if i == 1 {
				cancel()
			}
			return nil
		})
		assert.Equal(t, []int{0, 1, 2}, result.Succeeded, "the batch under way is not cut short")
		assert.Empty(t, result.Failed)
		assert.Equal(t, 7, result.Skipped)
		require.ErrorIs(t, result.Err, context.Canceled)
		require.EqualError(t, result.Err, "slowstart: stopped with 7 of 10 calls left: context canceled")
	})
	t.Run("W21 a context done beforehand makes no call", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		successes, err := slowstart.Batch(ctx, 10, 1, unreachable)
		assert.Zero(t, successes)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("W21 both the context's error and its cause are told", func(t *testing.T) {
		t.Parallel()
		shutdown := errors.New("leadership lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(shutdown)
		result := slowstart.Run(ctx, 2, slowstart.Options{}, unreachable)
		require.ErrorIs(t, result.Err, context.Canceled)
		require.ErrorIs(t, result.Err, shutdown)
		require.EqualError(t, result.Err, "slowstart: stopped with 2 of 2 calls left: context canceled: leadership lost")
	})
	t.Run("W21 a context done during the last batch changes nothing", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		result := slowstart.Run(ctx, 3, slowstart.Options{}, func(_ context.Context, i int) error {
			if i == 2 {
				cancel()
			}
			return nil
		})
		require.NoError(t, result.Err)
		assert.Equal(t, []int{0, 1, 2}, result.Succeeded)
	})
	t.Run("W21 after a failed batch its errors are told, not the context's", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		result := slowstart.Run(ctx, 3, slowstart.Options{}, func(context.Context, int) error {
			cancel()
			return callError(0)
		})
		require.EqualError(t, result.Err, "call 0 was refused")
	})
	t.Run("W22 the calls get the context", func(t *testing.T) {
		t.Parallel()
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		for _, maxParallel := range []int{0, 1, 2} {
			result := slowstart.Run(ctx, 3, slowstart.Options{MaxParallel: maxParallel}, func(ctx context.Context, _ int) error {
				if ctx.Value(key{}) != "value" {
					return errors.New("another context")
				}
				return nil
			})
			require.NoError(t, result.Err)
		}
	})
}

func TestMaxParallel(t *testing.T) {
	t.Parallel()
	t.Run("W23 never more than the cap are under way", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var underWay, most atomic.Int64
			result := slowstart.Run(t.Context(), 200, slowstart.Options{MaxParallel: 16}, func(_ context.Context, i int) error {
				defer underWay.Add(-1)
				for n := underWay.Add(1); ; {
					if seen := most.Load(); n <= seen || most.CompareAndSwap(seen, n) {
						break
					}
				}
				time.Sleep(time.Duration(1+i%7) * time.Second)
				return nil
			})
			require.NoError(t, result.Err)
			assert.EqualValues(t, 16, most.Load())
		})
	})
	t.Run("W23 without a cap a whole batch is under way at once", func(t *testing.T) {
		t.Parallel()
		var together sync.WaitGroup
		together.Add(64)
		result := slowstart.Run(t.Context(), 64, slowstart.Options{InitialBatchSize: 64}, func(context.Context, int) error {
			together.Done()
			together.Wait()
			return nil
		})
		require.NoError(t, result.Err)
	})
	t.Run("W23 a cap of 1 is inline: in order, in the caller's goroutine", func(t *testing.T) {
		t.Parallel()
		caller := goroutine()
		var order []int
		result := slowstart.Run(t.Context(), 10, slowstart.Options{MaxParallel: 1}, func(_ context.Context, i int) error {
			order = append(order, i)
			if goroutine() != caller {
				return errors.New("another goroutine")
			}
			return nil
		})
		require.NoError(t, result.Err)
		assert.Equal(t, upTo(0, 10), order)
	})
}

// goroutine returns the first words of the current stack trace, such as "goroutine 7".
func goroutine() string {
	buf := make([]byte, 64)
	head, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), " [")
	return head
}

// recovered runs fn, which must panic with a *Panic, and returns the *Panic.
func recovered(t *testing.T, fn func()) (p *slowstart.Panic) {
	t.Helper()
	defer func() {
		var ok bool
		p, ok = recover().(*slowstart.Panic)
		require.True(t, ok, "a *slowstart.Panic")
	}()
	fn()
	return nil
}

// explode panics. The name explode must appear in the stack trace of the *Panic.
func explode(value any) { panic(value) }

func TestPanic(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]slowstart.Options{
		"W4 a panic surfaces in the caller":                    {},
		"W4 a panic surfaces in the caller, capped":            {MaxParallel: 2},
		"W4 a panic surfaces in the caller, all in one batch":  {InitialBatchSize: 10},
		"W4 a panic surfaces in the caller, one batch, capped": {InitialBatchSize: 10, MaxParallel: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var underWay atomic.Int64
			p := recovered(t, func() {
				slowstart.Run(t.Context(), 10, opts, func(_ context.Context, i int) error {
					defer underWay.Add(-1)
					underWay.Add(1)
					if i == 4 {
						explode("disk on fire")
					}
					time.Sleep(time.Millisecond)
					return fails(6)(nil, i)
				})
			})
			assert.Zero(t, underWay.Load(), "its batch has ended")
			assert.Equal(t, "disk on fire", p.Value)
			assert.Contains(t, string(p.Stack), "slowstart_test.explode")
			assert.Contains(t, fmt.Sprintf("%v", p), "disk on fire")
			assert.Contains(t, fmt.Sprintf("%v", p), "slowstart_test.explode")
			assert.Equal(t, []int{0, 1, 2, 3, 5}, p.Result.Succeeded[:5])
			assert.Equal(t, []int{4, 6}, indices(p.Result.Failed))
			assert.Equal(t, 10, len(p.Result.Succeeded)+len(p.Result.Failed)+p.Result.Skipped)
			require.ErrorIs(t, p.Result.Err, callError(6))
		})
	}
	t.Run("W4 inline, a panic surfaces at once", func(t *testing.T) {
		t.Parallel()
		calls := 0
		p := recovered(t, func() {
			slowstart.Run(t.Context(), 10, slowstart.Options{MaxParallel: 1}, func(_ context.Context, i int) error {
				calls++
				if i == 4 {
					explode("disk on fire")
				}
				return nil
			})
		})
		assert.Equal(t, 5, calls)
		assert.Equal(t, "disk on fire", p.Value)
		assert.Contains(t, string(p.Stack), "slowstart_test.explode")
		assert.Equal(t, []int{0, 1, 2, 3}, p.Result.Succeeded)
		assert.Equal(t, []int{4}, indices(p.Result.Failed))
		assert.Equal(t, 5, p.Result.Skipped)
	})
	t.Run("W4 of several panics the first index surfaces, the others are told", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := recovered(t, func() {
				slowstart.Run(t.Context(), 4, slowstart.Options{InitialBatchSize: 4}, func(_ context.Context, i int) error {
					time.Sleep(time.Duration(10-i) * time.Second)
					panic(callError(i))
				})
			})
			assert.Equal(t, callError(0), p.Value)
			require.ErrorIs(t, p, callError(0), "an error as value is unwrapped")
			require.NotErrorIs(t, p, callError(3))
			require.ErrorIs(t, p.Result.Err, callError(3))
			assert.Equal(t, []int{0, 1, 2, 3}, indices(p.Result.Failed))
		})
	})
	t.Run("W4 Batch panics as Run does", func(t *testing.T) {
		t.Parallel()
		p := recovered(t, func() {
			_, _ = slowstart.Batch(t.Context(), 1, 1, func(context.Context, int) error { panic(nil) })
		})
		var nilPanic *runtime.PanicNilError
		require.ErrorAs(t, p, &nilPanic)
	})
	t.Run("W4 a *Panic that is returned is an error as any other", func(t *testing.T) {
		t.Parallel()
		inner := &slowstart.Panic{Value: "handled"}
		result := slowstart.Run(t.Context(), 3, slowstart.Options{}, func(context.Context, int) error { return inner })
		require.ErrorIs(t, result.Err, inner)
		assert.NoError(t, inner.Unwrap())
	})
}

func TestRecoverPanics(t *testing.T) {
	t.Parallel()
	for name, maxParallel := range map[string]int{
		"W4 a panic is the error of its call":         0,
		"W4 a panic is the error of its call, capped": 3,
		"W4 a panic is the error of its call, inline": 1,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := slowstart.Options{InitialBatchSize: 8, MaxParallel: maxParallel, RecoverPanics: true}
			result := slowstart.Run(t.Context(), 20, opts, func(_ context.Context, i int) error {
				switch i {
				case 2:
					explode("disk on fire")
				case 3:
					panic(callError(3))
				}
				return fails(5)(nil, i)
			})
			assert.Equal(t, []int{0, 1, 4, 6, 7}, result.Succeeded, "the rest of the batch is made")
			assert.Equal(t, []int{2, 3, 5}, indices(result.Failed))
			assert.Equal(t, 12, result.Skipped)
			var p *slowstart.Panic
			require.ErrorAs(t, result.Failed[0].Err, &p)
			assert.Equal(t, "disk on fire", p.Value)
			assert.Contains(t, string(p.Stack), "slowstart_test.explode")
			assert.Zero(t, p.Result)
			require.ErrorIs(t, result.Failed[1].Err, callError(3), "an error as value is unwrapped")
			require.EqualError(t, result.Err, "slowstart: panic in call: disk on fire\nslowstart: panic in call: call 3 was refused\ncall 5 was refused")
		})
	}
}

func TestGoexit(t *testing.T) {
	t.Parallel()
	for name, maxParallel := range map[string]int{
		"W4 a call that ends its goroutine has failed":                                 0,
		"W4 a call that ends its goroutine has failed, and another takes its share on": 2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := slowstart.Options{InitialBatchSize: 8, MaxParallel: maxParallel}
			result := slowstart.Run(t.Context(), 20, opts, func(_ context.Context, i int) error {
				if i < 4 {
					runtime.Goexit()
				}
				return nil
			})
			assert.Equal(t, []int{4, 5, 6, 7}, result.Succeeded)
			assert.Equal(t, []int{0, 1, 2, 3}, indices(result.Failed))
			assert.Equal(t, 12, result.Skipped)
			require.ErrorContains(t, result.Err, "slowstart: call 3 ended its goroutine (runtime.Goexit)")
		})
	}
	t.Run("W4 inline, it ends the caller's goroutine", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int64
		var returned atomic.Bool
		var caller sync.WaitGroup
		caller.Go(func() {
			slowstart.Run(t.Context(), 20, slowstart.Options{MaxParallel: 1}, func(context.Context, int) error {
				if calls.Add(1) == 3 {
					runtime.Goexit()
				}
				return nil
			})
			returned.Store(true)
		})
		caller.Wait()
		assert.EqualValues(t, 3, calls.Load())
		assert.False(t, returned.Load())
	})
}

// When Run returns or panics, all its calls have ended and it leaves no goroutine behind. If a goroutine could
// never end, the synctest bubble would fail.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for name, at20 := range map[string]func(cancel func()) error{
		"S2 after calls that succeed":             func(func()) error { return nil },
		"S2 after one that fails":                 func(func()) error { return callError(20) },
		"S2 after one that panics":                func(func()) error { panic("bug") },
		"S2 after one that ends its goroutine":    func(func()) error { runtime.Goexit(); return nil },
		"S2 after one in which the context ended": func(cancel func()) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, opts := range []slowstart.Options{{}, {MaxParallel: 3}, {InitialBatchSize: 100}} {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					var underWay atomic.Int64
					func() {
						defer func() { _ = recover() }()
						slowstart.Run(ctx, 100, opts, func(_ context.Context, i int) error {
							underWay.Add(1)
							defer underWay.Add(-1)
							time.Sleep(time.Duration(i%7) * time.Second)
							if i == 20 {
								return at20(cancel)
							}
							return nil
						})
					}()
					assert.Zero(t, underWay.Load())
				})
			}
		})
	}
}

// model is a simple implementation of Run without goroutines. model makes one call after the other, batch by
// batch.
func model(count, initial int, failing map[int]bool) (succeeded, failed []int, skipped int) {
	called := 0
	for size := initial; called < count && len(failed) == 0; size *= 2 {
		for range size {
			if called == count {
				break
			}
			if failing[called] {
				failed = append(failed, called)
			} else {
				succeeded = append(succeeded, called)
			}
			called++
		}
	}
	return succeeded, failed, count - called
}

func TestRunEqualsModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		count, initial, maxParallel := r.IntN(100), 1+r.IntN(8), r.IntN(5)
		failing := map[int]bool{}
		for range r.IntN(4) {
			failing[r.IntN(count+1)] = true
		}
		opts := slowstart.Options{InitialBatchSize: initial, MaxParallel: maxParallel}
		result := slowstart.Run(t.Context(), count, opts, func(_ context.Context, i int) error {
			if failing[i] {
				return callError(i)
			}
			return nil
		})
		succeeded, failed, skipped := model(count, initial, failing)
		require.Equal(t, succeeded, result.Succeeded, "%d calls, %+v, failing %v", count, opts, failing)
		require.Equal(t, failed, indices(result.Failed), "%d calls, %+v, failing %v", count, opts, failing)
		require.Equal(t, skipped, result.Skipped, "%d calls, %+v, failing %v", count, opts, failing)
		require.Equal(t, len(failed) == 0, result.Err == nil)
		for _, f := range result.Failed {
			require.Equal(t, callError(f.Index), f.Err)
			require.ErrorIs(t, result.Err, f.Err)
		}
	}
}
