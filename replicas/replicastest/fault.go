// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"errors"
	"net/url"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/replicakit/replicakit/slowstart"
)

// A Fault describes how a request fails. The zero Fault lets it succeed.
type Fault struct {
	Before error // if set, the request has no effect and returns this error
	After  error // if set, the request takes effect and returns this error
	// Resend makes the client send the request again, with a Fault of its own, instead of returning the error.
	// client-go does this after a 429 or 503 with Retry-After, and after a connection reset.
	Resend bool
	// Late is the delay after which a request with the error Before takes effect after all, with its original content,
	// even if its context has ended by then. 0 means never.
	Late time.Duration
}

// Lost returns the errors of calls that may have taken effect: a Timeout, a ServiceUnavailable, an InternalError, a
// TooManyRequests and a connection reset. The server or a component in front of it may return them.
func Lost() []error {
	return []error{
		timeout(), apierrors.NewServiceUnavailable("no endpoints"), apierrors.NewInternalError(errors.New("etcd is gone")),
		apierrors.NewTooManyRequests("too many requests", 2), &url.Error{Op: "Post", URL: "https://127.0.0.1/", Err: syscall.ECONNRESET},
	}
}

func timeout() error { return apierrors.NewTimeoutError("the request did not complete in time", 0) }

// A Crash is a panic value that simulates the death of the process during a pass. The callbacks of a Client or
// Controller may panic with a Crash.
type Crash struct{}

// String returns "the process died".
func (Crash) String() string { return "the process died" }

// Crashes runs f and reports whether f panicked with a Crash. Any other panic continues.
func Crashes(f func()) (crashed bool) {
	defer func() {
		value := recover()
		// Slow start wraps a panic of a call, which may have been a Crash, too.
		for p, ok := value.(*slowstart.Panic); ok; p, ok = value.(*slowstart.Panic) {
			value = p.Value
		}
		if _, crashed = value.(Crash); value != nil && !crashed {
			panic(value)
		}
	}()
	if f != nil {
		f()
	}
	return false
}
