// Package slowstart makes many calls in growing batches: 1, 2, 4, 8 ... When
// the server refuses, a caller that wanted five hundred pods has asked for one;
// when it is healthy, five hundred take nine rounds.
//
// What a call does, how its failure is reported and whether to try again are
// left to the caller:
//
//	result := slowstart.Run(ctx, missing, slowstart.Options{MaxParallel: 128},
//		func(ctx context.Context, i int) error { return createPod(ctx, names[i]) })
//	notCreated := slowstart.Rest(result, names) // no longer to be expected
//	return result.Err
//
// The batches are those of slowStartBatch in Kubernetes'
// pkg/controller/replicaset/replica_set.go.
//
// Differs from Kubernetes: a call knows its context and index; the context is
// looked at between batches; every error of the failing batch is kept, with its
// index; parallelism can be capped; a panic surfaces in the caller, or becomes
// an error; an initial batch size below 1 is an error instead of a success
// without a call.
package slowstart

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// DefaultInitialBatchSize is the size of the first batch if Options do not say
// otherwise.
const DefaultInitialBatchSize = 1

// Options shape a Run. The zero value starts with one call and caps nothing; a
// negative field is an error.
type Options struct {
	// InitialBatchSize is the number of calls in the first batch. 0 means
	// DefaultInitialBatchSize. A size above the count makes one batch of all.
	InitialBatchSize int

	// MaxParallel is how many calls may be under way at once. 0 is no cap: a
	// goroutine for each call of the batch. 1 makes the calls inline, one after
	// the other in index order, without a goroutine.
	MaxParallel int

	// RecoverPanics makes a panic in a call the error of that call, a *Panic,
	// and the rest of its batch is made as after any other error. By default Run
	// panics in its caller.
	RecoverPanics bool
}

// Result tells what became of the calls 0 to count-1: each is one of Succeeded,
// one of Failed, or among the last Skipped ones.
type Result struct {
	// Succeeded holds the indices of the calls that returned nil, ascending.
	Succeeded []int

	// Failed holds the calls that did not, in the order of their indices. All
	// are of one batch, the last that was started.
	Failed []Failure

	// Skipped counts the last calls, those never started.
	Skipped int

	// Err is nil if and only if every call succeeded. It joins the errors of
	// the failing batch in index order: errors.Is and errors.As look at all of
	// them, its text shows the first ten and says how many it left out. If the
	// context ended the run, Err wraps the context's error and its cause.
	Err error
}

// A Failure is a call that failed.
type Failure struct {
	Index int   // of the call
	Err   error // what it returned; never nil
}

// Rest returns the items whose calls did not succeed, those that were skipped
// included, in their order: items[i] is what call i of the Run was about. What was
// expected of them is no longer to be expected. The slice is not kept; nil if every
// call succeeded.
func Rest[T any](r Result, items []T) []T {
	var rest []T
	for i, item := range items {
		if _, succeeded := slices.BinarySearch(r.Succeeded, i); !succeeded {
			rest = append(rest, item)
		}
	}
	return rest
}

// Batch is Run with nothing but a first batch size, which must be at least 1. It
// returns how many calls succeeded, and Result.Err.
func Batch(ctx context.Context, count, initialBatchSize int, fn func(ctx context.Context, i int) error) (successes int, err error) {
	if count > 0 && initialBatchSize < 1 {
		return 0, fmt.Errorf("slowstart: initial batch size %d is less than 1", initialBatchSize)
	}
	result := Run(ctx, count, Options{InitialBatchSize: initialBatchSize}, fn)
	return len(result.Succeeded), result.Err
}

// Run calls fn for each i from 0 to count-1, in batches. Each batch is twice the
// size of the one before, and starts when every call of that one has returned
// nil. After a failed call the rest of its batch is still made, but no further
// batch.
//
// A count of 0 or less is the zero Result. With a negative option, a nil ctx or
// a nil fn no call is made, and Err says why.
//
// Each call gets ctx. Run itself looks at it before each batch, and starts none
// once it is done; a batch under way is not cut short.
//
// A panic in fn is raised again in the caller's goroutine, as a *Panic, when
// every call of its batch has ended; if calls are inline (MaxParallel 1) it is
// raised at once, and the rest of the batch is skipped. With RecoverPanics it is
// an error instead. A call that ends its goroutine by runtime.Goexit, as
// t.FailNow does, counts as failed; inline that goroutine is the caller's own,
// and ends.
//
// Whichever way Run ends, no call is under way and no goroutine is left. Runs are
// independent of each other. Calls of a batch run at the same time unless they
// are inline: fn must be safe for that.
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
