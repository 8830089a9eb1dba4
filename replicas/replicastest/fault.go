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

// A Fault describes how a request fails. The zero Fault causes no failure.
type Fault struct {
	Before error // if set, the request has no effect and returns this error
	After  error // if set, the request takes effect and returns this error
	// Resend makes the client send the request again instead of returning the error. client-go
	// sends a request again after a 429 or 503 with Retry-After, and after a connection reset. The
	// resent request gets a Fault of its own.
	Resend bool
	// Late applies to a request that fails with the error in the field Before. If Late is not 0,
	// the request takes effect after the delay in Late. The request takes effect with its original
	// content, even if its context has ended by then. If Late is 0, the request never takes effect.
	Late time.Duration
}

// Lost returns errors that a call can return even if the call took effect. These errors come from
// the server or from a component in front of the server. Lost returns a Timeout, a
// ServiceUnavailable, an InternalError, a TooManyRequests and a connection reset.
func Lost() []error {
	return []error{
		timeout(), apierrors.NewServiceUnavailable("no endpoints"), apierrors.NewInternalError(errors.New("etcd is gone")),
		apierrors.NewTooManyRequests("too many requests", 2), &url.Error{Op: "Post", URL: "https://127.0.0.1/", Err: syscall.ECONNRESET},
	}
}

func timeout() error { return apierrors.NewTimeoutError("the request did not complete in time", 0) }

// A Crash is a panic value that simulates the death of the process during a pass. The callbacks of
// a Client or Controller may panic with a Crash.
type Crash struct{}

// String returns "the process died".
func (Crash) String() string { return "the process died" }

// Crashes runs f and reports whether f panicked with a Crash. Any other panic continues.
func Crashes(f func()) (crashed bool) {
	defer func() {
		value := recover()
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
