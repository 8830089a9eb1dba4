// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/handlers"
	"github.com/replicakit/replicakit/replicas/internal/restores"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// An Object is a pointer to an API type, either one of Kubernetes or one of your own.
type Object interface {
	metav1.Object
	runtime.Object
}

// A Client calls the API server directly, without a cache. Its methods must return the errors of the API server,
// unchanged or wrapped with %w, because the Controller depends on NotFound, Conflict, Invalid and Retry-After.
//
// Up to Options.MaxParallel goroutines may call the methods at the same time for each owner. The methods must not change
// their arguments, except the child that is passed to Create, and must send no events, because the Controller does.
type Client[O, C Object] interface {
	// Create creates the child in the child's namespace, and returns the child as the server stored it. It may
	// modify its argument, for example decode the answer into it, because the argument is a deep copy of what
	// Spec.New returned, and no other code uses the copy. Create must send the request only once, but client-go,
	// for example, sends it again after a Retry-After header. The error of a request that may have been sent more
	// than once must wrap ErrResent, as the function NoteResent does.
	//
	// Create may also make other objects; see Kind.Client. It must make them before the child, under names that
	// follow from the child's name, because a creation without an answer is repeated under the same name. So an
	// object that exists already is no error. But if another request fails, Create must return its error and not
	// create the child. An AlreadyExists of another object must be translated, because the Controller would take
	// the child's name for taken. An error after the child's request must wrap ErrResent, because otherwise a
	// Forbidden would mean that no child was created. An object that belongs after the child is better made in
	// Kind.Prepare, because it would be missing for ever if the process ended in between.
	Create(ctx context.Context, child C) (C, error)
	// Delete deletes the child, with the given options and their preconditions.
	//
	// Delete may send another request instead, such as an update that asks the child's own controller to remove
	// the child; see Kind.Client. This request must carry the UID and, if it is set, the resourceVersion of
	// opts.Preconditions, because a late request could otherwise reach a child that has to stay by then. A second
	// request for the same child must do no harm. The answers mean what they mean for a deletion, and the
	// Controller records them in the same way. Nil means that the child will go, NotFound that it is gone, Conflict
	// that it is no longer the child of the preconditions, and Forbidden, Invalid, BadRequest or
	// MethodNotSupported that it stays. After any other error, the request may have taken effect or may still do
	// so. An error about another object must be none of these.
	//
	// The Controller waits for the child's deletionTimestamp, also if the request does not set it. Until the cache
	// shows a deletionTimestamp or the child is gone, nothing is created or deleted for the owner (the gate
	// CallsNotSeen). After Options.ExpectationsTimeout, the children are listed live. A child that has no
	// deletionTimestamp in this list counts as not deleted, so the next plan may choose another child as well,
	// unless the Rules name the child that has received the request, by Order or MustGo.
	Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error
	// Patch sends the patch to the child, or to patch.Subresource of it, and returns the whole child as the server
	// stored it.
	Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error)
	// Get reads a child.
	Get(ctx context.Context, namespace, name string) (C, error)
	// List returns the children in the namespace whose labels match the selector, or those in all namespaces if
	// the namespace is "", as it is if Kind.ClusterScoped is true. The list must be at least as recent as the call,
	// so do not set a resourceVersion, not even "0". If List reads several pages and their resourceVersions differ,
	// it must return an error. The Controller does not change the returned children.
	List(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[C], error)
	// GetOwner reads an owner. The Controller may change the returned owner.
	GetOwner(ctx context.Context, namespace, name string) (O, error)
	// PatchStatus sends a JSON merge patch to the status subresource of the owner, and returns the whole owner as
	// the server stored it. The patch contains the owner's UID and resourceVersion, so the server must return a
	// Conflict if the owner has changed. The argument owner contains the new status, but must not be sent to the
	// server, because it lacks the fields that the cache dropped. If your client can update but not patch, see the
	// example StatusByUpdate.
	PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error)
}

// ErrResent is wrapped in the error of Client.Create if the client sent the request more than once. The first request may
// have created the child even if the server refused the second one, so the Controller remembers the child's name and
// checks whether the child exists.
var ErrResent = errors.New("the request was sent more than once")

// NoteResent calls the function send, which must make one API call over net/http, and returns its error. It adds
// ErrResent to this error if the request was sent more than once, as client-go does if the server responds with 429 or
// 5xx and a Retry-After header. Use NoteResent in the Create method of a Client:
//
//	err = controller.NoteResent(ctx, func(ctx context.Context) error {
//		created, err = pods.Create(ctx, pod, metav1.CreateOptions{})
//		return err
//	})
//
// NoteResent counts the requests that net/http/httptrace reports. This may be none if the client's http.RoundTripper does
// not use an http.Transport, and then the error is returned unchanged.
func NoteResent(ctx context.Context, send func(ctx context.Context) error) error {
	if send == nil {
		return errors.New("controller: send is nil")
	}
	var sent atomic.Int64
	err := send(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}))
	if err != nil && sent.Load() > 1 {
		return fmt.Errorf("%w (%w)", err, ErrResent)
	}
	return err
}

// A Versioner is a Client that can also return the server's current resourceVersion for owners and for children. With
// it, a new process makes fewer reads. For example, it can create children of an owner that was written after the process
// began without first reading the owner from the server. If the cache also returns its version, the new process makes one
// small list of children instead of a live list for each owner.
type Versioner interface {
	// ServerOwnersVersion lists the owners in a namespace, or in all namespaces if it is "", and returns the
	// resourceVersion of the list. ServerChildrenVersion does the same for the children. The list must be at least
	// as recent as the call, but may be limited to one object. If the resourceVersion is not known, the method
	// returns an error or "".
	ServerOwnersVersion(ctx context.Context, namespace string) (string, error)
	ServerChildrenVersion(ctx context.Context, namespace string) (string, error)
}

// A Checker is a Client that can check whether its own settings are complete. New calls Check, which makes no calls to the
// server, and returns its error.
type Checker interface{ Check() error }

// A Cache returns owners and children from memory, as its watches have reported them so far. It may be incomplete or
// behind the server, and the Controller still works correctly. The Controller does not modify the returned objects, and
// does not retain the returned slices.
type Cache[O, C Object] interface {
	// The cache may drop fields of owners that Kind.Spec, Kind.Status and Kind.Prepare do not read.
	handlers.OwnerCache[O]
	// Children returns the owner's children in any state, and the orphans in the owner's namespace, or in all
	// namespaces if the owner is in none. The result may also contain children of other owners, which the
	// Controller ignores.
	Children(ctx context.Context, owner O) ([]C, error)
	// Related returns the children for Facts.Related, for example with the function replicas.Related. The
	// Controller calls it if a pass may have to delete a child. If Related returns nil or an error, the pass
	// continues, but pods are not ranked by co-location.
	Related(ctx context.Context, owner O) ([]C, error)
	// OwnersVersion returns the resourceVersion up to which the cache shows all changes of owners, or "" if it is
	// not known. Then passes do not wait for the cache to show the last status write. ChildrenVersion does the same
	// for children. If it is not known, the numbers in Outcome.Counts come from the cache alone.
	OwnersVersion() string
	ChildrenVersion() string
}

// An EventSink receives the events of a Controller, whose eventType is corev1.EventTypeNormal or
// corev1.EventTypeWarning. Several goroutines may call Event at the same time, and it should not block.
type EventSink interface {
	Event(owner metav1.Object, eventType, reason, message string)
}

// These are the reasons of a Controller's events, with their messages. "Sent once" means that the event is not sent again
// while the condition lasts. The event of a refused spec has the Reason of the RefusedError, such as
// replicas.InvalidSelector, replicas.InvalidReplicas and replicas.InvalidTemplate, or another one that a Kind defines.
const (
	SuccessfulCreate = "SuccessfulCreate"  // Created pod: <name>, where pod is the kind of the child in lower case
	FailedCreate     = "FailedCreate"      // Error creating: <error>
	SuccessfulDelete = "SuccessfulDelete"  // Deleted pod: <name> (<criterion>: <values>). The part in parentheses is sent only for a criterion that Kubernetes does not have.
	FailedDelete     = "FailedDelete"      // Error deleting: <error>
	SuccessfulUpdate = "SuccessfulUpdate"  // Updated pod: <name>. Not sent for a Change that is Free.
	SuccessfulRetire = "SuccessfulRetire"  // Asked <name> to leave: <criterion and values>
	SuccessfulRecall = "SuccessfulRecall"  // Recalled pod: <name>. It was asked to leave, and is wanted again.
	FailedUpdate     = "FailedUpdate"      // Error updating <name>: <error>
	FailedAdopt      = "FailedAdopt"       // Error adopting <name>: <error>. Sent once.
	FailedRelease    = "FailedRelease"     // Error releasing <name>: <error>. Sent once.
	DeletionsHeld    = "DeletionsHeld"     // Holding deletions for <time>: <why>. Sent once.
	CreationsHeld    = "CreationsHeld"     // Holding creations for <time>: <why>. Sent once.
	FailedOwner      = "FailedReadOwner"   // Error reading the owner: <error>. Nothing is deleted. Sent once.
	FailedList       = "FailedList"        // Error listing: <error>. The view is old, and a live list failed. Sent once.
	FailedLook       = "FailedLook"        // Error looking for pods: <error>. An earlier call had no answer. Sent once.
	FailedRelated    = "FailedRelatedPods" // Error listing related pods: <error>. Sent once.
	FailedStatus     = "FailedStatus"      // Error writing the status: <error>. The error names the missing permission, or what is wrong with Kind.Status. Sent once.
	FailedSpec       = "FailedSpec"        // Kind.Spec failed: <error>, or <why its result cannot be used>. The pass is tried again. Sent once for each generation and text.
	InvalidStep      = "InvalidStep"       // <why the Step is invalid>. Nothing is created or deleted. Sent once for each generation and text.
	Panicked         = "Panicked"          // A function of the Kind or the client panicked, and the log has the stack: <value>
	ServerRestored   = "ServerRestored"    // <the text of ErrRestored and the proof of the restore>. Sent once, for the first owner whose pass ends after the restore was detected.
)

// ErrRestored is wrapped in the error of Controller.Sync after the Controller has detected that the API server was
// restored from a backup. The caches and the Controller then hold a state that the server no longer has. So from then on,
// the Controller makes no changes, and Sync returns this error at once. Do not retry, but restart the process, or make a
// new Controller with new caches.
//
// The Controller compares resourceVersions only if they are numbers and belong to the same resource. Each of the
// following observations proves a restore:
//   - A live list has an older resourceVersion than an earlier live list. The earlier list had ended before
//     the later list began.
//   - The cache or a response shows a resourceVersion, and a live list or a read that begins later returns
//     an older one.
//   - A live list contains a child whose DELETED event arrived before the list began. This rule applies
//     only if Options.UnfilteredChildren is set.
//
// The resourceVersions of two different objects are never compared. A cache that goes back to an older version proves
// nothing, because it may now read from an API server that lags behind, and neither does an object that is not found.
var ErrRestored = restores.Err

// sendRestoredEvent sends the event ServerRestored, once for the Controller.
func (p *pass[O, C]) sendRestoredEvent(err error) {
	if p.opts.Events != nil && !object.IsNil(p.Owner) && p.restoredEventSent.CompareAndSwap(false, true) {
		p.opts.Events.Event(p.Owner, corev1.EventTypeWarning, ServerRestored, err.Error())
	}
}

// errNoObject is the error of a call that succeeded but returned no object.
var errNoObject = errors.New("the client returned no object")

// isFinal reports whether a failed creation certainly has no effect, now or later.
func isFinal(err error) bool {
	// The client sent the request twice. The first one made the pod that fills the quota, and the second one was refused
	// because the quota is full. So a refusal after a second sending is no answer to the first.
	return !errors.Is(err, ErrResent) && (isRefusal(err) || apierrors.IsAlreadyExists(err) || namespaceIsGoing(err))
}

// hadNoAnswer reports whether the result of a deletion or change is unknown.
func hadNoAnswer(err error) bool {
	return err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !isRefusal(err) && !errors.Is(err, ErrOverLimit)
}

// isRefusal reports whether the server refused a call, which then has no effect, now or later.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// namespaceIsGoing reports whether a creation failed because the namespace is being deleted or gone.
func namespaceIsGoing(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// quotaIsFull reports whether a creation failed because a resource quota is full, which only the text of the error says.
func quotaIsFull(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// explained adds advice to an error about a child if the server's message does not say what to do.
func (p *pass[O, C]) explained(err error, child C) error {
	owner, kind := object.Name(p.Owner), p.kind.Owner
	switch {
	case err == nil:
		return nil
	case needsFinalizers(err):
		return fmt.Errorf("%w (%s %q: the right to update %s/finalizers in the group %q is missing, which blockOwnerDeletion of the children needs on this server)", err, kind.Kind, owner, p.ownerResource.Resource, kind.Group)
	case child.GetNamespace() == "" && p.kind.ClusterScoped && hasNoNamespace(err):
		return apierrors.NewBadRequest(fmt.Sprintf("%s %q is in no namespace, and its %s are in namespaces: New must set the namespace of each: %v", kind.Kind, owner, p.childResource.Resource, err))
	}
	return err
}

// needsFinalizers reports whether the admission plugin OwnerReferencesPermissionEnforcement refused an owner reference,
// which only the text of the error says.
func needsFinalizers(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot set blockOwnerDeletion")
}

// hasNoNamespace reports whether the creation of a child in no namespace failed because of that.
func hasNoNamespace(err error) bool {
	// The server does not know the path, or the client rejects the call. No child is created.
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || strings.Contains(err.Error(), "an empty namespace may not be set")
}

// MaxServerDelay is how long a Retry-After from the server can delay an owner's next pass at most. A longer one is
// shortened, because a server that is wrong must not hold an owner for hours.
const MaxServerDelay = 5 * time.Minute

// serverDelay returns the longest Retry-After among the errors, but at most MaxServerDelay.
func serverDelay(errs []error) time.Duration {
	longest := 0
	for _, err := range errs {
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			longest = max(longest, seconds)
		}
	}
	return time.Duration(min(longest, int(MaxServerDelay/time.Second))) * time.Second
}

func asRefused(err error) (e *replicas.RefusedError, ok bool) {
	return e, errors.As(err, &e) && e != nil
}

func isRefused(err error) bool {
	if err == nil { // the usual case, without an allocation
		return false
	}
	_, refused := asRefused(err)
	return refused
}

// onlyRefused reports whether err consists only of RefusedErrors.
func onlyRefused(err error) bool {
	switch e := err.(type) { //nolint:errorlint // this function walks the tree of errors itself
	case *replicas.RefusedError:
		return true
	case interface{ Unwrap() error }:
		return onlyRefused(e.Unwrap())
	case interface{ Unwrap() []error }:
		errs := e.Unwrap()
		return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !onlyRefused(err) })
	}
	return false
}

// joinErrors is like errors.Join, but returns a single error unchanged.
func joinErrors(a, b error) error {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return errors.Join(a, b)
}

func nameOf(c metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}
}
