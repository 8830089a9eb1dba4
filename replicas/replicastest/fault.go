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

// A Fault is what goes wrong with a request. The zero Fault means that nothing goes wrong.
type Fault struct {
	Before error // the request has no effect, and this is its answer
	After  error // the request has its effect, and this replaces the answer
	// Resend sends the request again instead of returning the error. client-go does so after a 429
	// or 503 with Retry-After, and after a connection that was reset. Another Fault decides about
	// the request that is sent again.
	Resend bool
	// Late is how long after the call a request that failed with Before takes effect anyway. It
	// takes effect as it was sent, even if its context has ended. 0 means that it never does.
	Late time.Duration
}

// Lost returns errors that can come after a call has had its effect. The server or a component in
// front of it returns them. They are a Timeout, ServiceUnavailable, InternalError, TooManyRequests
// and a connection that is reset.
func Lost() []error {
	return []error{
		timeout(), apierrors.NewServiceUnavailable("no endpoints"), apierrors.NewInternalError(errors.New("etcd is gone")),
		apierrors.NewTooManyRequests("too many requests", 2), &url.Error{Op: "Post", URL: "https://127.0.0.1/", Err: syscall.ECONNRESET},
	}
}

func timeout() error { return apierrors.NewTimeoutError("the request did not complete in time", 0) }

// A Crash is the value that a function of a Client or Controller panics with if the process must
// die in a pass.
type Crash struct{}

// String says what happened.
func (Crash) String() string { return "the process died" }

// Crashes calls f and reports whether f panicked with a Crash. Any other panic continues.
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
