// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package slowstart

import (
	"context"
	"errors"
	"fmt"

	"github.com/replicakit/replicakit/internal/joined"
)

// A Panic is the value with which Run panics if fn panicked. If Options.RecoverPanics is set, a
// Panic is the error of the call that panicked. If a deferred function must know which calls
// succeeded, recover, read Result and panic again:
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
	// Value is the value with which fn panicked.
	Value any

	// Stack is the stack of the goroutine that panicked, as debug.Stack returns it.
	Stack []byte

	// Result says what happened to the calls. A call that panicked counts as failed. If several
	// calls panicked, Value and Stack belong to the first of them in index order, and the panics of
	// the others are in Result.Err. If Options.RecoverPanics is set, Result is zero.
	Result Result

	recovered bool // the Panic is the error of a call
}

// Error returns a text with the value. If Run panicked with p, the stack follows the value, so that
// a crashing program prints the stack. If Options.RecoverPanics is set, the text has no stack, so
// that it fits into a log line or a condition.
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

// stopped returns the error of a Run that stopped because its context was done. The error wraps the
// error and the cause of the context.
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
