// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slowstart makes many calls in growing batches: 1, 2, 4, 8 ... If the server refuses, a
// caller that wants 500 pods has made only one call. If all goes well, 500 calls take nine batches.
//
// The caller decides what a call does, how its failure is reported, and whether to try again:
//
//	result := slowstart.Run(ctx, missing, slowstart.Options{MaxParallel: 128},
//		func(ctx context.Context, i int) error { return createPod(ctx, names[i]) })
//	notCreated := slowstart.Rest(result, names) // no longer expected
//	return result.Err
//
// The batches are those of slowStartBatch in Kubernetes' pkg/controller/replicaset/replica_set.go.
//
// Differs from Kubernetes: a call knows its context and index; the context is checked between
// batches; every error of the failing batch is kept, with its index; parallelism can be capped; a
// panic is raised in the caller's goroutine, or becomes an error; an initial batch size below 1 is
// an error, not a success without a call.
package slowstart

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// DefaultInitialBatchSize is the default size of the first batch.
const DefaultInitialBatchSize = 1

// Options are the settings of a Run. The zero value starts with one call and has
// no cap. A negative field is an error.
type Options struct {
	// InitialBatchSize is the number of calls in the first batch. 0 means
	// DefaultInitialBatchSize. A size above the count makes one batch of all.
	InitialBatchSize int

	// MaxParallel is how many calls may run at the same time. 0 means no cap, so each call of a
	// batch has its own goroutine. 1 means that the caller's goroutine makes the calls, one after
	// the other in index order.
	MaxParallel int

	// RecoverPanics turns a panic in a call into the error of that call, a *Panic. The rest of the
	// batch still runs, as after any other error. By default, Run panics in the goroutine of its
	// caller.
	RecoverPanics bool
}

// Result says what happened to the calls 0 to count-1. Each call is listed in Succeeded, or listed
// in Failed, or is one of the last calls, which Skipped counts.
type Result struct {
	// Succeeded holds the indices of the calls that returned nil, ascending.
	Succeeded []int

	// Failed holds the calls that failed, in the order of their indices. All of
	// them belong to the last batch that was started.
	Failed []Failure

	// Skipped counts the calls that were never started. They are always the last ones.
	Skipped int

	// Err is nil if and only if every call succeeded. It joins the errors of the failing batch in
	// index order. errors.Is and errors.As look at all of them. The text shows the first ten and
	// says how many it leaves out. If the context ended the run, Err wraps the context's error and
	// its cause.
	Err error
}

// A Failure is a call that failed.
type Failure struct {
	Index int   // of the call
	Err   error // what it returned; never nil
}

// Rest returns the items whose calls failed or were skipped, in their order. items[i] belongs to
// call i. Use it to lower the expectations of these items. The slice is not kept. The result is nil
// if every call succeeded.
func Rest[T any](r Result, items []T) []T {
	var rest []T
	for i, item := range items {
		if _, succeeded := slices.BinarySearch(r.Succeeded, i); !succeeded {
			rest = append(rest, item)
		}
	}
	return rest
}

// Batch is Run with only one option, the size of the first batch, which must be
// at least 1. It returns how many calls succeeded, and Result.Err.
func Batch(ctx context.Context, count, initialBatchSize int, fn func(ctx context.Context, i int) error) (successes int, err error) {
	if count > 0 && initialBatchSize < 1 {
		return 0, fmt.Errorf("slowstart: initial batch size %d is less than 1", initialBatchSize)
	}
	result := Run(ctx, count, Options{InitialBatchSize: initialBatchSize}, fn)
	return len(result.Succeeded), result.Err
}

// Run calls fn for each i from 0 to count-1, in batches. Each batch is twice the size of the batch
// before, and starts when every call of the batch before has returned nil. If a call fails, the
// rest of its batch still runs, but no further batch starts.
//
// If count is 0 or less, Run returns the zero Result. If an option is negative, or ctx or fn is
// nil, no call is made, and Err says why.
//
// Each call gets ctx. Run checks ctx before each batch, and starts no batch once ctx is done. A
// batch that has started is finished.
//
// If fn panics, Run waits until every call of the batch has ended, and then panics with a *Panic in
// the caller's goroutine. If MaxParallel is 1, Run panics at once, and the rest of the batch is
// skipped. With RecoverPanics the panic is an error instead. A call that ends its goroutine by
// runtime.Goexit, as t.FailNow does, counts as failed. If MaxParallel is 1, it ends the caller's
// goroutine.
//
// When Run returns or panics, no call is running and no goroutine is left. Runs are independent of
// each other. The calls of a batch run at the same time unless MaxParallel is 1, so fn must be safe
// for concurrent use.
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

// check returns what is wrong with the arguments of a Run.
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
