package controller

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// An Object is an API object: a pointer to a type of Kubernetes' or of your own.
type Object interface {
	metav1.Object
	runtime.Object
}

// A Client makes calls to the API server, past every cache. Errors must keep
// their type: wrap them with %w at most, since what becomes of a child hangs on
// NotFound, Conflict, Invalid and Retry-After.
//
// The methods are called from many goroutines at once, up to Options.MaxParallel
// for each owner. They must treat their arguments as read only, but for the child
// of Create, and must not send events: the Controller does.
type Client[O, C Object] interface {
	// Create creates the child in its namespace and returns it as the server
	// stored it. The child is this call's own: it may be changed.
	Create(ctx context.Context, child C) (C, error)
	// Delete deletes the child with the given options, preconditions included. It
	// returns the resourceVersion that the deletion left the child with, or "" if
	// the child is gone or the server did not say.
	Delete(ctx context.Context, child C, opts metav1.DeleteOptions) (resourceVersion string, err error)
	// Patch sends the patch to the child's main resource and returns the whole
	// child as the server stored it.
	Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error)
	// Get reads a child.
	Get(ctx context.Context, namespace, name string) (C, error)
	// List returns the children of the namespace that the selector matches, of
	// all namespaces if it is "" as for Kind.ClusterScoped, as they are at one
	// moment after the call: with no resourceVersion, not even "0". A list in pages
	// must be all of one version; else it is an error. The Controller changes none of
	// the children.
	List(ctx context.Context, namespace string, matching labels.Selector) (List[C], error)
	// GetOwner reads an owner; the Controller may change what it returns.
	GetOwner(ctx context.Context, namespace, name string) (O, error)
	// UpdateStatus writes the owner's status, if the owner still has the
	// resourceVersion that it is given with, and returns what the server stored.
	UpdateStatus(ctx context.Context, owner O) (O, error)
}

// A List is what a live list returned.
type List[C Object] struct {
	Items []C
	// ResourceVersion is that of the list itself; "" if it is not known.
	ResourceVersion string
}

// A Cache answers from memory what the watches have told so far. It need not be
// complete or new: that it is late is what the Controller reckons with. What it
// returns is never changed, and slices are not kept.
type Cache[O, C Object] interface {
	OwnerCache[O]
	// Children returns the owner's children, in any state, and the orphans of its
	// namespace, or of all namespaces if the owner is in none. Other children do no
	// harm.
	Children(ctx context.Context, owner O) ([]C, error)
	// Related returns what ranks the owner's children by co-location; see
	// replicas.SpecOf.Related, and replicas.Related for a way to find it. It is
	// called if something may be deleted. An error costs the ranking, not the
	// pass. nil: nothing is related.
	Related(ctx context.Context, owner O) ([]C, error)
	// OwnersVersion and ChildrenVersion tell how far the cache has come: a
	// resourceVersion, of which Owner and Children already know everything. "" if
	// that is not known: own writes are then not waited for.
	OwnersVersion() string
	ChildrenVersion() string
}

// An OwnerCache is the part of a Cache that event handlers read.
type OwnerCache[O Object] interface {
	// Owner returns an owner. If there is none, the error is a NotFound.
	Owner(ctx context.Context, name types.NamespacedName) (O, error)
	// Owners returns the owners of a namespace, for the orphans that one of them
	// may want to adopt; of all if namespace is "", as for Kind.ClusterScoped.
	Owners(ctx context.Context, namespace string) ([]O, error)
}

// Enqueue asks for a pass for an owner: at once if after is 0, else after that
// time. Of several requests for one owner the earliest counts. A work queue that
// is keyed by name serves with Add and AddAfter. It may be called several times
// for one event.
type Enqueue func(owner types.NamespacedName, after time.Duration)

// An EventSink takes the events that the Controller has to tell about an owner.
// eventType is corev1.EventTypeNormal or corev1.EventTypeWarning. It is called
// from many goroutines at once and should not block.
type EventSink interface {
	Event(owner metav1.Object, eventType, reason, message string)
}

// The reasons of the Controller's events. Specs that are refused are told by
// replicas.InvalidSelector, replicas.InvalidReplicas, replicas.InvalidTemplate, or
// a reason of the Kind's own.
const (
	SuccessfulCreate = "SuccessfulCreate"  // Created pod: <name>
	FailedCreate     = "FailedCreate"      // Error creating: <error>
	SuccessfulDelete = "SuccessfulDelete"  // Deleted pod: <name>
	FailedDelete     = "FailedDelete"      // Error deleting: <error>
	FailedAdopt      = "FailedAdopt"       // Error adopting <name>: <error>; once while it lasts
	FailedRelease    = "FailedRelease"     // Error releasing <name>: <error>; once while it lasts
	DeletionsHeld    = "DeletionsHeld"     // Holding deletions for <time>: <why>; once while it lasts
	CreationsHeld    = "CreationsHeld"     // Holding creations for <time>: <why>; once while it lasts
	FailedList       = "FailedList"        // Error listing: <error>: the view is old, and a live list failed; once while it lasts
	FailedRelated    = "FailedRelatedPods" // Error listing related pods: <error>; once while it lasts
)
