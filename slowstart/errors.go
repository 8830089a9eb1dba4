// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package slowstart

import (
	"context"
	"errors"
	"fmt"

	"github.com/replicakit/replicakit/internal/joined"
)

// A Panic is what Run panics with if fn did, or the error of that call if Options.RecoverPanics is
// set. If a deferred function has to know which calls succeeded, recover, look at Result and panic
// again:
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
	// Value is what fn panicked with.
	Value any

	// Stack is the stack of the goroutine that panicked, as debug.Stack returns it.
	Stack []byte

	// Result says what happened to the calls. The call that panicked counts as failed. If several
	// calls panicked, Value and Stack belong to the first in index order, and the others are in
	// Result.Err. With Options.RecoverPanics the Result is zero.
	Result Result

	recovered bool // it is the error of a call
}

// Error returns the value. If Run panicked with p, the stack follows, so that a
// program that crashes prints it. With Options.RecoverPanics there is no stack,
// so the text fits into a log line or a condition.
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

// stopped returns the error of a Run that its context ended. It wraps the context's error and its
// cause.
func stopped(ctx context.Context, skipped, count int) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("slowstart: stopped with %d of %d calls left: %w", skipped, count, cause)
	}
	return fmt.Errorf("slowstart: stopped with %d of %d calls left: %w: %w", skipped, count, err, cause)
}

// join returns the errors of the failures, or nil if there are none.
func join(failures []Failure) error {
	errs := make([]error, len(failures))
	for i, f := range failures {
		errs[i] = f.Err
	}
	return joined.Errors(errs)
}
