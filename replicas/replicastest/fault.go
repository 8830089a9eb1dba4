// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/replicakit/replicakit/slowstart"
)

// A Fault is what goes wrong with a request. The zero Fault is that nothing does.
type Fault struct {
	Before error // the request has no effect and this is its answer
	After  error // the request has its effect, and this comes instead of the answer
	// Resend sends the request again and does not return the error, as client-go
	// does after a 429 or 503 with Retry-After, and after a connection that was
	// reset. Another Fault decides about the request that is sent again.
	Resend bool
	// Late is how long after the call a request that failed with Before takes
	// effect all the same: as it was sent, also if its context has ended by then.
	// 0 means that it never does.
	Late time.Duration
}

// A Failure is a way in which a call fails.
type Failure uint8

// Lost returns the failures that can come after the effect: those of the server,
// and of what stands in front of it.
func Lost() []Failure {
	return []Failure{Timeout, ServiceUnavailable, InternalError, TooManyRequests, ConnectionReset}
}

// The failures, each with the status code of its answer.
const (
	Timeout            Failure = iota // 504: nobody knows whether the call took effect
	ServiceUnavailable                // 503
	InternalError                     // 500
	TooManyRequests                   // 429, to come back after two seconds
	Conflict                          // 409: the object is not as the caller saw it
	Forbidden                         // 403: a webhook denies it
	Invalid                           // 422: a policy finds it invalid
	BadRequest                        // 400: a webhook denies it so
	ConnectionReset                   // the connection is reset: no answer
	Failures                          // how many there are
)

// String returns the name of the failure.
func (f Failure) String() string {
	return [...]string{"timeout", "unavailable", "broken", "throttled", "conflict", "forbidden", "rejected", "refused", "cut"}[f%Failures]
}

// Of returns the error that a call returns if it fails in this way.
func (f Failure) Of(call Call) error {
	kind := schema.GroupKind{Group: call.group, Kind: call.Kind}
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	switch resource := plural.GroupResource(); f {
	case Timeout:
		return apierrors.NewTimeoutError("the request did not complete in time", 0)
	case ServiceUnavailable:
		return apierrors.NewServiceUnavailable("no endpoints")
	case TooManyRequests:
		return apierrors.NewTooManyRequests("too many requests", 2)
	case Conflict:
		return apierrors.NewConflict(resource, call.Name, errors.New("the object has been modified"))
	case Forbidden:
		return apierrors.NewForbidden(resource, call.Name, errors.New("admission webhook denied the request"))
	case Invalid:
		return rejected(kind, call.Name)
	case BadRequest:
		return apierrors.NewBadRequest(fmt.Sprintf("admission webhook denied the request: %s", call.Name))
	case ConnectionReset:
		return &url.Error{Op: call.Verb, URL: "https://127.0.0.1/" + call.Name, Err: syscall.ECONNRESET}
	}
	return apierrors.NewInternalError(errors.New("etcd is gone"))
}

func rejected(kind schema.GroupKind, name string) error {
	err := apierrors.NewInvalid(kind, name, field.ErrorList{field.Forbidden(field.NewPath("metadata"), "by policy")})
	err.ErrStatus = metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("admission webhook denied the request: %s", name), Details: err.ErrStatus.Details,
	}
	return err
}

// A Crash is what a function of a Client or Controller panics with if the
// process shall die in the middle of a pass.
type Crash struct{}

// Crashes calls f and reports whether f panicked with a Crash. Any other panic goes
// on.
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
