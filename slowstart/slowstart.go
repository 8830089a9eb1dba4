// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slowstart makes many calls in growing batches of 1, 2, 4, 8 and so on. For example, a
// caller wants to create 500 pods. If the API server refuses the first call, no other call is made.
// If all calls succeed, the 500 calls take nine batches.
//
// The caller decides what a call does, how failures are reported, and whether failed calls are
// retried:
//
//	result := slowstart.Run(ctx, missing, slowstart.Options{MaxParallel: 128},
//		func(ctx context.Context, i int) error { return createPod(ctx, names[i]) })
//	notSent := names[missing-result.Skipped:]
//	return result.Err
//
// The batches have the same sizes as those of slowStartBatch in Kubernetes'
// pkg/controller/replicaset/replica_set.go.
//
// Differs from Kubernetes: the function that makes a call receives the context and the index of the
// call. The context is checked between batches. All errors of the failing batch are kept, each with
// the index of its call. The number of parallel calls can be limited. If a call panics, Run panics
// in the caller's goroutine or returns the panic as an error. If the initial batch size is below 1,
// Kubernetes makes no calls and reports success. In this package, a negative size is an error, and
// Batch also returns an error for the size 0.
package slowstart

import (
	"context"
	"errors"
	"fmt"
)

// DefaultInitialBatchSize is the default size of the first batch.
const DefaultInitialBatchSize = 1

// Options holds the settings of a Run. The zero value starts with one call and does not limit the
// number of parallel calls. Negative values are errors.
type Options struct {
	// InitialBatchSize is the number of calls in the first batch. A value of 0 means
	// DefaultInitialBatchSize. If InitialBatchSize is larger than the number of calls, all calls
	// are in one batch.
	InitialBatchSize int

	// MaxParallel is the maximum number of calls that run at the same time. A value of 0 means no
	// limit, so each call of a batch has its own goroutine. A value of 1 means that the calls are
	// made in the caller's goroutine, one after the other in index order.
	MaxParallel int

	// RecoverPanics turns a panic in a call into a *Panic, which is returned as the error of this
	// call. The rest of the batch still runs, as after any other error. If RecoverPanics is false
	// and a call panics, Run panics in the goroutine of its caller.
	RecoverPanics bool
}

// Result describes the outcome of the calls 0 to count-1. Every call that was started is either in
// Succeeded or in Failed.
type Result struct {
	// Succeeded holds the indices of the calls that returned nil, in ascending order.
	Succeeded []int

	// Failed holds the calls that failed, in the order of their indices. All failed calls belong to
	// the last batch that was started.
	Failed []Failure

	// Skipped is the number of calls that were never started. The skipped calls are always the
	// calls with the highest indices.
	Skipped int

	// Err is nil if and only if every call succeeded. Err joins the errors of the failing batch in
	// index order, and errors.Is and errors.As find each of them. The message of Err contains the
	// first ten errors and the number of the remaining errors. If Run stopped because the context
	// was done, Err wraps ctx.Err() and context.Cause(ctx).
	Err error
}

// A Failure is a call that failed.
type Failure struct {
	Index int   // the index of the call
	Err   error // the error of the call; never nil
}

// Batch calls Run with the size of the first batch as the only option. The size of the first batch
// must be at least 1. Batch returns the number of calls that succeeded, and Result.Err.
func Batch(ctx context.Context, count, initialBatchSize int, fn func(ctx context.Context, i int) error) (successes int, err error) {
	if count > 0 && initialBatchSize < 1 {
		return 0, fmt.Errorf("slowstart: initial batch size %d is less than 1", initialBatchSize)
	}
	result := Run(ctx, count, Options{InitialBatchSize: initialBatchSize}, fn)
	return len(result.Succeeded), result.Err
}

// Run calls fn for each i from 0 to count-1, in batches. Each batch is twice as large as the
// previous batch, and starts when all calls of the previous batch have returned nil. If a call
// fails, the other calls of its batch are still made, but no further batch starts.
//
// If count is 0 or less, Run returns the zero Result. If an option is negative, or if ctx or fn is
// nil, Run makes no calls and returns the reason in Result.Err.
//
// Run passes ctx to each call. Run checks ctx before each batch, and starts no batch once ctx is
// done. If a batch has started, all of its calls are made even if ctx is done.
//
// If fn panics, Run waits until every call of the batch has ended, and then panics with a *Panic in
// the caller's goroutine. If fn panics and MaxParallel is 1, Run panics immediately and skips the
// rest of the batch. If RecoverPanics is set, Run does not panic, and the panic is the error of the
// call. A call that ends its goroutine with runtime.Goexit, as t.FailNow does, counts as failed. If
// MaxParallel is 1, runtime.Goexit ends the caller's goroutine.
//
// When Run returns or panics, all calls have ended, and Run leaves no goroutines behind. Run keeps
// no state, and may be called concurrently. If MaxParallel is not 1, the calls of a batch run
// concurrently, so fn must be safe for concurrent use.
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
