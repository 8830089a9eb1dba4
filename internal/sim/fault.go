package sim

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/replicakit/replicakit/slowstart"
)

// A Failure is a way in which a call fails. As Fault.After, with the effect done,
// only Timeout, Unavailable and Throttled are what a server can answer.
type Failure uint8

// The failures, each with the status code of its answer.
const (
	Timeout     Failure = iota // 504: nobody knows whether the call took effect
	Unavailable                // 503
	Broken                     // 500
	Throttled                  // 429, to come back after two seconds
	Conflicted                 // 409: the object is not as the caller saw it
	Forbidden                  // 403: a webhook denies it
	Rejected                   // 422: a policy finds it invalid
	Failures                   // how many there are
)

// String names the failure.
func (f Failure) String() string {
	return [...]string{"timeout", "unavailable", "broken", "throttled", "conflict", "forbidden", "rejected"}[f%Failures]
}

// Of is the error that a call of a kind of failure comes back with.
func (f Failure) Of(call Call) error {
	resource := podResource
	if call.Kind == replicaSetKind.Kind {
		resource = replicaSetResource
	}
	switch f {
	case Timeout:
		return apierrors.NewTimeoutError("the request did not complete in time", 0)
	case Unavailable:
		return apierrors.NewServiceUnavailable("no endpoints")
	case Throttled:
		return apierrors.NewTooManyRequests("too many requests", 2)
	case Conflicted:
		return apierrors.NewConflict(resource, call.Name, errors.New("the object has been modified"))
	case Forbidden, Rejected:
		return Denied(f, resource, call.Name)
	}
	return apierrors.NewInternalError(errors.New("etcd is gone"))
}

// Denied is what a webhook answers: Forbidden, or else Rejected.
func Denied(f Failure, resource schema.GroupResource, name string) error {
	if f == Forbidden {
		return apierrors.NewForbidden(resource, name, errors.New("admission webhook denied the request"))
	}
	err := apierrors.NewInvalid(podKind, name, field.ErrorList{field.Forbidden(field.NewPath("metadata"), "by policy")})
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
		if p, ok := value.(*slowstart.Panic); ok {
			value = p.Value
		}
		if _, crashed = value.(Crash); value != nil && !crashed {
			panic(value)
		}
	}()
	f()
	return false
}
