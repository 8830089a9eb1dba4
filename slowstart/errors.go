// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package slowstart

import (
	"context"
	"errors"
	"fmt"

	"github.com/replicakit/replicakit/internal/joined"
)

// A Panic describes a panic in fn. Run panics with a *Panic, or returns the *Panic as the error of
// the call if Options.RecoverPanics is set. To find out which calls succeeded, a deferred function
// can recover, read Result, and panic again:
//
//	defer func() {
//		value := recover()
//		if p, ok := value.(*slowstart.Panic); ok {
//			cleanUp(p.Result.Succeeded)
//		}
//		if value != nil {
//			panic(value)
//		}
//	}()
type Panic struct {
	// Value is the value that fn panicked with.
	Value any

	// Stack is the stack trace of the goroutine that panicked, as returned by debug.Stack.
	Stack []byte

	// Result describes the outcome of the calls. A call that panicked counts as failed. If several
	// calls panicked, Value and Stack belong to the call with the lowest index, and Result.Err
	// contains all panics. If Options.RecoverPanics is set, Result is zero.
	Result Result

	recovered bool // true if Run returns the Panic as the error of a call
}

// Error returns a message that contains Value. If Run panicked with p, the message also contains
// Stack, so that a crashing program prints the stack trace. If Options.RecoverPanics is set, the
// message omits Stack, so the message fits into a log line or a condition.
func (p *Panic) Error() string {
	if p.recovered {
		return fmt.Sprintf("slowstart: panic in call: %v", p.Value)
	}
	return fmt.Sprintf("slowstart: panic in call: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap returns Value if it is an error, and nil otherwise.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// stopped returns the error for a Run that ended early because its context was done. The returned
// error wraps ctx.Err() and context.Cause(ctx).
func stopped(ctx context.Context, skipped, count int) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("slowstart: stopped with %d of %d calls left: %w", skipped, count, cause)
	}
	return fmt.Errorf("slowstart: stopped with %d of %d calls left: %w: %w", skipped, count, err, cause)
}

// join returns an error that joins the errors of the failures, or nil if there are no failures.
func join(failures []Failure) error {
	errs := make([]error, len(failures))
	for i, f := range failures {
		errs[i] = f.Err
	}
	return joined.Errors(errs)
}
