// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

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

// A batch is the part of a Run that makes the calls with the indices start to end-1.
type batch struct {
	start, end    int
	recoverPanics bool

	mu       sync.Mutex
	failures []Failure
	panics   []panicked // the panics that are not recovered; see raise
}

type panicked struct {
	index int
	*Panic
}

func (b *batch) run(ctx context.Context, maxParallel int, fn call) {
	if maxParallel == 1 {
		b.inline(ctx, fn)
		return
	}
	goroutines := b.end - b.start
	if maxParallel > 0 {
		goroutines = min(goroutines, maxParallel)
	}
	b.callInParallel(ctx, goroutines, fn)
}

// inline makes the calls in the caller's goroutine. If panics are not recovered, the first call
// that panics ends the batch.
func (b *batch) inline(ctx context.Context, fn call) {
	for i := b.start; i < b.end; i++ {
		b.callOne(ctx, i, fn)
		if len(b.panics) > 0 {
			b.end = i + 1
		}
	}
}

// callInParallel makes the calls in several goroutines, and waits for all calls. Each goroutine takes
// the next index until all indices are taken.
func (b *batch) callInParallel(ctx context.Context, goroutines int, fn call) {
	var next atomic.Int64
	next.Store(int64(b.start))
	var wg sync.WaitGroup
	var work func()
	work = func() {
		defer func() {
			// If calls remain, fn has ended this goroutine with runtime.Goexit. Another goroutine
			// then makes the remaining calls.
			if next.Load() < int64(b.end) {
				go work()
				return
			}
			wg.Done()
		}()
		for i := int(next.Add(1)) - 1; i < b.end; i = int(next.Add(1)) - 1 {
			b.callOne(ctx, i, fn)
		}
	}
	wg.Add(goroutines)
	for range goroutines {
		go work()
	}
	wg.Wait()
}

// callOne makes one call, and records the failure if the call fails.
func (b *batch) callOne(ctx context.Context, i int, fn call) {
	var err error
	returned := false
	defer func() {
		switch value := recover(); {
		case value != nil:
			err = b.panicked(i, &Panic{Value: value, Stack: debug.Stack(), recovered: b.recoverPanics})
		case !returned:
			err = fmt.Errorf("slowstart: call %d ended its goroutine (runtime.Goexit)", i)
		}
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.failures = append(b.failures, Failure{i, err})
		}
	}()
	err = fn(ctx, i)
	returned = true
}

// panicked returns p as the error of call i, which has panicked. If panics are not recovered, it
// also stores p, so that the method raise can use it.
func (b *batch) panicked(i int, p *Panic) error {
	if !b.recoverPanics {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.panics = append(b.panics, panicked{i, p})
	}
	return p
}

// record adds the outcome of the calls to the result of the Run.
func (b *batch) record(result *Result) {
	slices.SortFunc(b.failures, func(x, y Failure) int { return cmp.Compare(x.Index, y.Index) })
	result.Skipped -= b.end - b.start
	failures := b.failures
	for i := b.start; i < b.end; i++ {
		if len(failures) > 0 && failures[0].Index == i {
			failures = failures[1:]
			continue
		}
		result.Succeeded = append(result.Succeeded, i)
	}
	result.Failed = b.failures
	result.Err = join(b.failures)
}

// raise repeats the panic of a call in the goroutine that called Run. If several calls panicked,
// the panic of the call with the lowest index is repeated.
func (b *batch) raise(result Result) {
	if len(b.panics) == 0 {
		return
	}
	first := slices.MinFunc(b.panics, func(x, y panicked) int { return cmp.Compare(x.index, y.index) })
	panic(&Panic{Value: first.Value, Stack: first.Stack, Result: result})
}
