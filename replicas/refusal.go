// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
)

// In errors from this package, RefusedError.Reason is one of these constants, InvalidRollout, InvalidChange,
// InvalidGroups or InvalidDeleteOptions.
const (
	InvalidSelector = "InvalidSelector"
	InvalidReplicas = "InvalidReplicas"
	InvalidTemplate = "InvalidTemplate"
	InvalidSlots    = "InvalidSlots"
)

// A RefusedError means that the spec of the owner object cannot be used, so retrying is useless until the owner
// changes. Find it with errors.As. A function of yours that builds the Spec may also return one, if the owner's spec is
// certainly a mistake. A controller.Controller then reports one event, and does not retry until the owner changes.
type RefusedError struct {
	// Reason is the CamelCase reason of the event that is reported on the owner: InvalidSelector, InvalidReplicas,
	// InvalidTemplate, InvalidSlots, InvalidRollout, InvalidChange, InvalidGroups, InvalidDeleteOptions, or one of your
	// own.
	Reason string
	// Err describes the mistake, and names the object and the field. If it is nil, the error message has no other
	// detail than Reason.
	Err error
}

// Error returns the message of Err, or if Err is nil, one that contains Reason.
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
