// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failure provides the errors of failed API calls for this library's own tests.
package failure

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A Failure describes how an API call fails.
type Failure uint8

// Lost returns the failures of calls that may have taken effect. The server or a proxy in front of it may cause them.
func Lost() []Failure {
	return []Failure{Timeout, ServiceUnavailable, InternalError, TooManyRequests, ConnectionReset}
}

// These are the failures, with the HTTP status code of each response.
const (
	Timeout            Failure = iota // 504, so the call may have taken effect
	ServiceUnavailable                // 503
	InternalError                     // 500
	TooManyRequests                   // 429, with a Retry-After of two seconds
	Conflict                          // 409, because the object has changed since the caller read it
	Forbidden                         // 403, because a webhook denies the call
	Invalid                           // 422, because a policy rejects the object as invalid
	BadRequest                        // 400, because a webhook denies the call with this status code
	ConnectionReset                   // the connection is reset before a response arrives
	Failures                          // the number of constants above
)

// String returns the name of the failure.
func (f Failure) String() string {
	return [...]string{"timeout", "unavailable", "broken", "throttled", "conflict", "forbidden", "rejected", "refused", "cut"}[f%Failures]
}

// Of returns the error of the given API call if the call fails in this way.
func (f Failure) Of(call replicastest.Call) error {
	kind := schema.GroupKind{Kind: call.Kind}
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

// Deny returns a Webhook that refuses every call with the given verb.
func Deny[C metav1.Object](verb, kind string, f Failure) func(string, C) error {
	return func(v string, child C) error {
		if v != verb {
			return nil
		}
		return f.Of(replicastest.Call{Verb: v, Kind: kind, NamespacedName: types.NamespacedName{Namespace: child.GetNamespace(), Name: child.GetName()}})
	}
}
