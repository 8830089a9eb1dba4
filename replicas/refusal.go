// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
)

// In errors from this package, RefusedError.Reason is one of these constants, InvalidRollout,
// InvalidChange, InvalidGroups or InvalidDeleteOptions.
const (
	InvalidSelector = "InvalidSelector"
	InvalidReplicas = "InvalidReplicas"
	InvalidTemplate = "InvalidTemplate"
	InvalidSlots    = "InvalidSlots"
)

// A RefusedError means that the spec of the owner object cannot be used. Retrying is useless until
// the owner changes. Use errors.As to find a RefusedError in an error. If your own function builds
// the Spec, and the owner's spec is certainly a mistake, this function may also return a
// RefusedError. A controller.Controller then reports one event, and does not retry until the owner
// changes.
type RefusedError struct {
	// Reason is the CamelCase reason of the event that is reported on the owner. Reason is
	// InvalidSelector, InvalidReplicas, InvalidTemplate, InvalidSlots, InvalidRollout, InvalidChange,
	// InvalidGroups, InvalidDeleteOptions, or a reason of your own.
	Reason string
	// Err describes the mistake, and names the object and the field. If Err is nil, Reason is the
	// only detail in the error message.
	Err error
}

// Error returns the message of Err. If Err is nil, Error returns a message that contains Reason.
func (e *RefusedError) Error() string {
	switch {
	case e == nil || object.IsNil(e.Err) && e.Reason == "":
		return "replicas: spec is refused"
	case object.IsNil(e.Err):
		return "replicas: spec is refused: " + e.Reason
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

func refuse(owner metav1.Object, kind schema.GroupVersionKind, reason, why string) error {
	return &RefusedError{Reason: reason, Err: failure(owner, kind, "%s", why)}
}

// failure returns an error that names the owner.
func failure(owner metav1.Object, kind schema.GroupVersionKind, format string, args ...any) error {
	return fmt.Errorf("replicas: %s %q: %w", kind.Kind, object.Name(owner), fmt.Errorf(format, args...))
}
