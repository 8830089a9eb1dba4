package replicas

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/selector"
)

// PodControl makes the calls that a plan asks for: the only thing that a caller
// must supply. Errors of the API server must keep their type: wrap them with %w
// at most, since what becomes of a pod hangs on NotFound, Conflict, Invalid and
// Retry-After.
//
// The methods are called from many goroutines at once, up to
// Reconciler.MaxParallel. They must treat their arguments as read only, but for
// the pod to create, and must not send events: the Reconciler does.
type PodControl interface {
	// CreatePod creates the pod and returns it as the server stored it. The pod
	// is this call's own: it may be changed.
	CreatePod(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error)
	// DeletePod deletes the pod with the given options, preconditions
	// included. It returns the resourceVersion of the pod as the deletion left
	// it, or "" where it is gone or the server did not say.
	DeletePod(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) (resourceVersion string, err error)
	// PatchPod sends the patch to the pod's main resource and returns the whole
	// pod as the server stored it.
	PatchPod(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error)
	// GetPod reads the pod live, past every cache.
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// ListPods returns the pods of the namespace that the selector matches, as
	// they are at one moment after the call: live, past every cache, so with no
	// resourceVersion, not even "0". A list in pages must be all of one version;
	// else it is an error. The Reconciler changes none of the pods.
	ListPods(ctx context.Context, namespace string, selector labels.Selector) ([]*corev1.Pod, error)
}

// An OwnerReader reads owners live, past every cache: the last look before the
// first adoption.
type OwnerReader interface {
	GetOwner(ctx context.Context, namespace, name string) (metav1.Object, error)
}

// An EventSink takes the events that the Reconciler has to tell about an owner.
// eventType is corev1.EventTypeNormal or corev1.EventTypeWarning. It is called
// from many goroutines at once and should not block.
type EventSink interface {
	Event(owner metav1.Object, eventType, reason, message string)
}

// The reasons of the Reconciler's events. Refused specs are told by
// InvalidSelector, InvalidReplicas and InvalidTemplate.
const (
	SuccessfulCreate = "SuccessfulCreate"  // Created pod: <name>
	FailedCreate     = "FailedCreate"      // Error creating: <error>
	SuccessfulDelete = "SuccessfulDelete"  // Deleted pod: <name>
	FailedDelete     = "FailedDelete"      // Error deleting: <error>
	DeletionsHeld    = "DeletionsHeld"     // Holding deletions for <time>: <why>; see Reconcile
	FailedRelated    = "FailedRelatedPods" // Error listing related pods: <error>
)
