package replicas

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
)

// The reasons for which a Spec is refused, as an event on the owner names them.
const (
	InvalidSelector = "InvalidSelector"
	InvalidReplicas = "InvalidReplicas"
	InvalidTemplate = "InvalidTemplate"
)

// A RefusedError says that an owner's own spec can not be acted on. Trying
// again is useless until the owner changes. Find it with errors.As. Return one
// from where you make a Spec, if an owner of your kind can only be a mistake: a
// controller.Controller tells it once, and does not try again.
type RefusedError struct {
	// Reason is that of the event on the owner, in CamelCase: InvalidSelector,
	// InvalidReplicas, InvalidTemplate, or one of your own.
	Reason string
	// Err names the object and the field. nil: the Reason says all.
	Err error
}

// Error returns the text of Err.
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

func refuse(owner metav1.Object, kind schema.GroupVersionKind, reason, format string, args ...any) error {
	return &RefusedError{Reason: reason, Err: failure(owner, kind, format, args...)}
}

// failure is an error that names the owner.
func failure(owner metav1.Object, kind schema.GroupVersionKind, format string, args ...any) error {
	return fmt.Errorf("replicas: %s %q: %w", kind.Kind, object.Name(owner), fmt.Errorf(format, args...))
}
