// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slowstart makes many calls in growing batches of 1, 2, 4, 8 and so on. If the server
// refuses the first call, a caller that wants 500 pods has made only one call. If all calls
// succeed, 500 calls take nine batches.
//
// The caller decides what a call does, how its failure is reported, and whether to try again:
//
//	result := slowstart.Run(ctx, missing, slowstart.Options{MaxParallel: 128},
//		func(ctx context.Context, i int) error { return createPod(ctx, names[i]) })
//	notCreated := slowstart.Rest(result, names) // no longer expected
//	return result.Err
//
// The batches have the same sizes as those of slowStartBatch in Kubernetes'
// pkg/controller/replicaset/replica_set.go.
//
// Differs from Kubernetes: a call gets its context and index. The context is checked between
// batches. Every error of the failing batch is kept, with the index of its call. The number of
// parallel calls can be limited. A panic is raised in the caller's goroutine, or becomes an error.
// In Kubernetes, an initial batch size below 1 means success without a call. In this package, a
// negative size is an error, and so is 0 for Batch.
package slowstart

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// DefaultInitialBatchSize is the default size of the first batch.
const DefaultInitialBatchSize = 1

// Options are the settings of a Run. The zero value starts with one call and does not limit the
// number of parallel calls. A negative field is an error.
type Options struct {
	// InitialBatchSize is the number of calls in the first batch. 0 means DefaultInitialBatchSize.
	// If the size is above the number of calls, all calls are in one batch.
	InitialBatchSize int

	// MaxParallel is how many calls may run at the same time. 0 means no limit, so each call of a
	// batch has its own goroutine. 1 means that the caller's goroutine makes the calls, one after
	// the other in index order.
	MaxParallel int

	// RecoverPanics turns a panic in a call into the error of that call, which is a *Panic. The
	// rest of the batch still runs, as after any other error. By default, Run panics in the
	// goroutine of its caller.
	RecoverPanics bool
}

// Result says what happened to the calls 0 to count-1. A call that was started is in Succeeded or
// in Failed. The calls that were not started are the last ones, and Skipped counts them.
type Result struct {
	// Succeeded holds the indices of the calls that returned nil, ascending.
	Succeeded []int

	// Failed holds the calls that failed, in the order of their indices. All failed calls belong to
	// the last batch that was started.
	Failed []Failure

	// Skipped is the number of calls that were never started. The skipped calls are always the last
	// ones.
	Skipped int

	// Err is nil if and only if every call succeeded. Err joins the errors of the failing batch in
	// index order, and errors.Is and errors.As find each of them. The text of Err shows the first
	// ten errors, and says how many more there are. If the context ended the Run, Err wraps the
	// error and the cause of the context.
	Err error
}

// A Failure is a call that failed.
type Failure struct {
	Index int   // the index of the call
	Err   error // the error of the call; never nil
}

// Rest returns the items whose calls failed or were skipped, in their order. The item items[i]
// belongs to call i. Use Rest to lower the expectations of these items. The slice is not kept. If
// every call succeeded, the result is nil.
func Rest[T any](r Result, items []T) []T {
	var rest []T
	for i, item := range items {
		if _, succeeded := slices.BinarySearch(r.Succeeded, i); !succeeded {
			rest = append(rest, item)
		}
	}
	return rest
}

// Batch is Run with the size of the first batch as its only option. The size of the first batch
// must be at least 1. Batch returns the number of calls that succeeded, and Result.Err.
func Batch(ctx context.Context, count, initialBatchSize int, fn func(ctx context.Context, i int) error) (successes int, err error) {
	if count > 0 && initialBatchSize < 1 {
		return 0, fmt.Errorf("slowstart: initial batch size %d is less than 1", initialBatchSize)
	}
	result := Run(ctx, count, Options{InitialBatchSize: initialBatchSize}, fn)
	return len(result.Succeeded), result.Err
}

// Run calls fn for each i from 0 to count-1, in batches. Each batch is twice as large as the batch
// before it, and starts when every call of the batch before it has returned nil. If a call fails,
// the rest of its batch still runs, but no further batch starts.
//
// If count is 0 or less, Run returns the zero Result. If an option is negative, or if ctx or fn is
// nil, Run makes no call, and Result.Err says why.
//
// Run passes ctx to each call. Run checks ctx before each batch, and starts no batch once ctx is
// done. If a batch has started, all of its calls are made even if ctx is done.
//
// If fn panics, Run waits until every call of the batch has ended, and then panics with a *Panic in
// the caller's goroutine. If fn panics and MaxParallel is 1, Run panics at once, and the rest of
// the batch is skipped. If RecoverPanics is set, the panic is an error instead. If a call ends its
// goroutine by runtime.Goexit, as t.FailNow does, the call counts as failed. If MaxParallel is 1,
// such a call ends the caller's goroutine.
//
// When Run returns or panics, no call is running, and no goroutine of Run is left. Runs are
// independent of each other. Unless MaxParallel is 1, the calls of a batch run at the same time, so
// fn must be safe for concurrent use.
func Run(ctx context.Context, count int, opts Options, fn func(ctx context.Context, i int) error) Result {
	if count <= 0 {
		return Result{}
	}
	result := Result{Skipped: count, Err: check(ctx, opts, fn)}
	size := max(opts.InitialBatchSize, DefaultInitialBatchSize)
	for result.Err == nil && result.Skipped > 0 {
		if ctx.Err() != nil {
			result.Err = stopped(ctx, result.Skipped, count)
			break
		}
		start := count - result.Skipped
		b := batch{start: start, end: start + min(size, result.Skipped), recoverPanics: opts.RecoverPanics}
		b.run(ctx, opts.MaxParallel, fn)
		b.record(&result)
		b.raise(result)
		size *= 2
	}
	return result
}

// check returns an error if an argument of Run is invalid.
func check(ctx context.Context, opts Options, fn call) error {
	switch {
	case opts.InitialBatchSize < 0:
		return fmt.Errorf("slowstart: initial batch size %d is negative", opts.InitialBatchSize)
	case opts.MaxParallel < 0:
		return fmt.Errorf("slowstart: max parallel %d is negative", opts.MaxParallel)
	case ctx == nil:
		return errors.New("slowstart: context is nil")
	case fn == nil:
		return errors.New("slowstart: function is nil")
	}
	return nil
}
