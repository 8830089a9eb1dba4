package slowstart

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

type call = func(ctx context.Context, i int) error

// batch is the calls start to end-1 of a Run.
type batch struct {
	start, end int

	mu       sync.Mutex
	failures []failure
}

// failure is a call that did not return nil.
type failure struct {
	index    int
	err      error
	panicked *Panic // nil, or the same as err
}

func (b *batch) run(ctx context.Context, maxParallel int, fn call) {
	switch maxParallel {
	case 0:
		b.concurrently(ctx, b.end-b.start, fn)
	case 1:
		b.inline(ctx, fn)
	default:
		b.concurrently(ctx, min(maxParallel, b.end-b.start), fn)
	}
}

// inline makes the calls in the caller's goroutine. After a panic the batch ends
// with the call that panicked.
func (b *batch) inline(ctx context.Context, fn call) {
	for i := b.start; i < b.end; i++ {
		b.do(ctx, i, fn)
		if n := len(b.failures); n > 0 && b.failures[n-1].panicked != nil {
			b.end = i + 1
		}
	}
}

// concurrently makes the calls in a number of goroutines, each taking the next
// index until none is left, and waits for them.
func (b *batch) concurrently(ctx context.Context, goroutines int, fn call) {
	var next atomic.Int64
	next.Store(int64(b.start))
	var wg sync.WaitGroup
	var work func()
	work = func() {
		defer func() {
			// The loop was left early: fn ended this goroutine by runtime.Goexit.
			if next.Load() < int64(b.end) {
				go work()
				return
			}
			wg.Done()
		}()
		for i := int(next.Add(1)) - 1; i < b.end; i = int(next.Add(1)) - 1 {
			b.do(ctx, i, fn)
		}
	}
	wg.Add(goroutines)
	for range goroutines {
		go work()
	}
	wg.Wait()
}

// do makes one call and keeps its failure.
func (b *batch) do(ctx context.Context, i int, fn call) {
	f := failure{index: i}
	returned := false
	defer func() {
		switch value := recover(); {
		case value != nil:
			f.panicked = &Panic{Value: value, Stack: debug.Stack()}
			f.err = f.panicked
		case !returned:
			f.err = fmt.Errorf("slowstart: call %d ended its goroutine (runtime.Goexit)", i)
		}
		if f.err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.failures = append(b.failures, f)
		}
	}()
	f.err = fn(ctx, i)
	returned = true
}

// record adds what became of the calls to the result of their Run.
func (b *batch) record(result *Result) {
	slices.SortFunc(b.failures, func(x, y failure) int { return cmp.Compare(x.index, y.index) })
	result.Skipped -= b.end - b.start
	failures := b.failures
	for i := b.start; i < b.end; i++ {
		if len(failures) > 0 && failures[0].index == i {
			result.Failed = append(result.Failed, i)
			failures = failures[1:]
			continue
		}
		result.Succeeded = append(result.Succeeded, i)
	}
	result.Err = join(b.failures)
}

// raise panics in the caller of Run if a call panicked: with the first, if there
// are several.
func (b *batch) raise(result Result) {
	for _, f := range b.failures {
		if f.panicked != nil {
			panic(&Panic{Value: f.panicked.Value, Stack: f.panicked.Stack, Result: result})
		}
	}
}
