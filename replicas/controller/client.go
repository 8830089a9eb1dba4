// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// An Object is an API object: a pointer to a type of Kubernetes or of your own.
type Object interface {
	metav1.Object
	runtime.Object
}

// A Client makes calls to the API server, and reads no cache. Errors must be the
// API server's, wrapped with %w at most: what the Controller does depends on
// NotFound, Conflict, Invalid and Retry-After.
//
// The methods are called by several goroutines at once, up to Options.MaxParallel
// for each owner. They must not change their arguments, except the child of Create.
// They must not send events: the Controller does.
type Client[O, C Object] interface {
	// Create creates the child in its namespace, and returns it as the server
	// stored it. Nobody else has the child that it is given, so Create may change
	// it. Create must send the request only once. If it fails, and may have sent the
	// request again, as client-go does after a Retry-After, its error must wrap
	// ErrResent; NoteResent adds that.
	Create(ctx context.Context, child C) (C, error)
	// Delete deletes the child, with the given options and their preconditions.
	Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error
	// Patch sends the patch to the child itself, not to a subresource, and returns
	// the whole child as the server stored it.
	Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error)
	// Get reads a child.
	Get(ctx context.Context, namespace, name string) (C, error)
	// List returns the children of the namespace that the selector matches; for
	// namespace "", which Kind.ClusterScoped needs, those of all namespaces. The
	// list must be as new as the call: send no resourceVersion, not even "0". If it
	// is read in pages, all must have one version, or List returns an error. The
	// Controller does not change the children.
	List(ctx context.Context, namespace string, matching labels.Selector) (List[C], error)
	// GetOwner reads an owner. The Controller may change what it returns.
	GetOwner(ctx context.Context, namespace, name string) (O, error)
	// PatchStatus sends the patch, a JSON merge patch, to the status sub-resource of the
	// owner, and returns the whole owner as the server stored it. The patch has the owner's
	// UID and resourceVersion, so it must fail with a Conflict if the owner on the server
	// has another version. The owner has its new status. Do not send the owner itself,
	// because it lacks what the cache dropped. The example StatusByUpdate is for a client
	// that can only update.
	PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error)
}

// A Versioner is a Client that can tell how far the server has come. Then a new process
// needs no read of an owner that was written since the process began. If the cache tells
// its version too, one small list of children replaces a live list for each owner.
type Versioner interface {
	// ServerOwnersVersion and ServerChildrenVersion return the resourceVersion of a list of
	// the owners, or of the children, of a namespace, or of all namespaces if it is "". The
	// list must be as new as the call, as that of Client.List, but one object of it is
	// enough. An error, or "", means that it is not known.
	ServerOwnersVersion(ctx context.Context, namespace string) (string, error)
	ServerChildrenVersion(ctx context.Context, namespace string) (string, error)
}

// A Checker is a Client that knows whether it was made from all that it needs. Check makes
// no call. If it returns an error, so does New.
type Checker interface{ Check() error }

// errNoObject is what an answer without an object and without an error amounts to: it
// tells nothing.
var errNoObject = errors.New("the client returned no object")

// A List is what a live list returned.
type List[C Object] struct {
	Items []C
	// ResourceVersion is the version of the list itself, "" if it is not known.
	ResourceVersion string
}

// A Cache answers from memory what the watches have told so far. It may be
// incomplete and behind: the Controller takes care of that. The Controller does not
// change what it returns, and keeps none of the slices.
type Cache[O, C Object] interface {
	OwnerCache[O]
	// Children returns the owner's children, in any state, and the orphans of its
	// namespace; if the owner is in none, the orphans of all namespaces. Other
	// children may be in the list: they are ignored.
	Children(ctx context.Context, owner O) ([]C, error)
	// Related returns the children for Spec.Related; the function
	// replicas.Related finds them. It is called if something may have to be
	// deleted. If it returns nil or an error, pods are not ranked by co-location;
	// the pass goes on.
	Related(ctx context.Context, owner O) ([]C, error)
	// OwnersVersion and ChildrenVersion return how far the cache has come: a
	// resourceVersion up to which Owner and Children show everything. If that is
	// not known, they return "". Then no pass waits until the cache shows the status
	// that was written last, and the numbers of Outcome.Counts are those of the cache.
	OwnersVersion() string
	ChildrenVersion() string
}

// An OwnerCache is the part of a Cache that event handlers read.
type OwnerCache[O Object] interface {
	// Owner returns an owner. If there is none with this name, the error is a
	// NotFound. A transform of the cache may drop what Kind.Spec, Kind.Status and
	// Kind.BeforeScale do not read, such as annotations and managedFields.
	Owner(ctx context.Context, name types.NamespacedName) (O, error)
	// Owners returns the owners of a namespace; for namespace "", which
	// Kind.ClusterScoped needs, all owners. One of them may want to adopt an
	// orphan.
	Owners(ctx context.Context, namespace string) ([]O, error)
}

// Enqueue asks for a pass for an owner: at once if after is 0, else after that
// time. If there are several requests for one owner, the earliest must be served.
// It may be called several times for one event. AddAfter of a work queue is an
// Enqueue.
type Enqueue func(owner types.NamespacedName, after time.Duration)

// An EventSink takes the events of a Controller. eventType is
// corev1.EventTypeNormal or corev1.EventTypeWarning. Event is called by several
// goroutines at once, and should not block.
type EventSink interface {
	Event(owner metav1.Object, eventType, reason, message string)
}

// The reasons of a Controller's events, with their messages. An event about a
// refused spec has the reason of the RefusedError: replicas.InvalidSelector,
// replicas.InvalidReplicas, replicas.InvalidTemplate, or one of the Kind's own.
const (
	SuccessfulCreate = "SuccessfulCreate"  // Created pod: <name>, with the kind of the child in lower case
	FailedCreate     = "FailedCreate"      // Error creating: <error>
	SuccessfulDelete = "SuccessfulDelete"  // Deleted pod: <name>, and (<criterion>: <values>) if one decided that is not Kubernetes'
	FailedDelete     = "FailedDelete"      // Error deleting: <error>
	FailedAdopt      = "FailedAdopt"       // Error adopting <name>: <error>; once while it lasts
	FailedRelease    = "FailedRelease"     // Error releasing <name>: <error>; once while it lasts
	DeletionsHeld    = "DeletionsHeld"     // Holding deletions for <time>: <why>; once while it lasts
	CreationsHeld    = "CreationsHeld"     // Holding creations for <time>: <why>; once while it lasts
	FailedOwner      = "FailedReadOwner"   // Error reading the owner: <error>; nothing is deleted; once while it lasts
	FailedList       = "FailedList"        // Error listing: <error>: the view is old, and a live list failed; once while it lasts
	FailedLook       = "FailedLook"        // Error looking for pods: <error>: a creation or deletion had no answer, and a look for the child failed: its place is held; once while it lasts
	FailedRelated    = "FailedRelatedPods" // Error listing related pods: <error>; once while it lasts
	FailedStatus     = "FailedStatus"      // Error writing the status: <error>, with the right that is needed; once while it lasts
	FailedSpec       = "FailedSpec"        // <error of Kind.Spec that is no RefusedError>; the pass is tried again; once for each generation and text
	Panicked         = "Panicked"          // <what a function of the Kind or the client panicked with>; the pass ended there
	ServerRestored   = "ServerRestored"    // <ErrRestored, and what proves it>; once for a Controller, about the owner whose pass ended first after that
)

func nameOf(c metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}
}
