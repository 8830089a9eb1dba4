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

// A Fault is what goes wrong with a request. The zero Fault is nothing.
type Fault struct {
	Before error // the request has no effect and this is its answer
	After  error // the request has its effect, and this comes instead of the answer
	// Resend sends the request again instead of passing the answer on, as client-go
	// does after a 429 or a 503 with Retry-After and after a connection that was
	// reset. The Fault of the second try is asked for anew.
	Resend bool
	// Late is when a request with a Before takes effect after all, counted from the call.
	Late time.Duration
}

// A Failure is a way in which a call fails.
type Failure uint8

// Lost are the failures that may come after the effect: a server's, or those of
// what stands before it.
func Lost() []Failure { return []Failure{Timeout, Unavailable, Broken, Throttled, Cut} }

// The failures, each with the status code of its answer.
const (
	Timeout     Failure = iota // 504: nobody knows whether the call took effect
	Unavailable                // 503
	Broken                     // 500
	Throttled                  // 429, to come back after two seconds
	Conflicted                 // 409: the object is not as the caller saw it
	Forbidden                  // 403: a webhook denies it
	Rejected                   // 422: a policy finds it invalid
	Refused                    // 400: a webhook denies it so
	Cut                        // the connection is reset: no answer
	Failures                   // how many there are
)

// String names the failure.
func (f Failure) String() string {
	return [...]string{"timeout", "unavailable", "broken", "throttled", "conflict", "forbidden", "rejected", "refused", "cut"}[f%Failures]
}

// Of is the error that a call of a kind of failure comes back with.
func (f Failure) Of(call Call) error {
	kind := schema.GroupKind{Group: call.group, Kind: call.Kind}
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	switch resource := plural.GroupResource(); f {
	case Timeout:
		return apierrors.NewTimeoutError("the request did not complete in time", 0)
	case Unavailable:
		return apierrors.NewServiceUnavailable("no endpoints")
	case Throttled:
		return apierrors.NewTooManyRequests("too many requests", 2)
	case Conflicted:
		return apierrors.NewConflict(resource, call.Name, errors.New("the object has been modified"))
	case Forbidden:
		return apierrors.NewForbidden(resource, call.Name, errors.New("admission webhook denied the request"))
	case Rejected:
		return rejected(kind, call.Name)
	case Refused:
		return apierrors.NewBadRequest(fmt.Sprintf("admission webhook denied the request: %s", call.Name))
	case Cut:
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

// A Crash is what a hook panics with for the process to die in the middle of a
// pass.
type Crash struct{}

// Crashes calls f and reports whether a Crash ended it. Other panics go through.
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
