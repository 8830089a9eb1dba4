// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"slices"
	"strconv"
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
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
)

// An Object is a pointer to an API type, either one of Kubernetes or one of your own.
type Object interface {
	metav1.Object
	runtime.Object
}

// A Client calls the API server directly, without a cache. Its methods must return the errors of the API
// server, unchanged or wrapped with %w. The Controller depends on NotFound, Conflict, Invalid and
// Retry-After.
//
// For each owner, up to Options.MaxParallel goroutines call the methods at once. The methods must not
// change their arguments, except the child that is passed to Create. The methods must not send events,
// because the Controller sends them.
type Client[O, C Object] interface {
	// Create creates the child in the child's namespace, and returns the child as the server stored it.
	// Create may change its argument child, because no other code uses that object. Create must send the
	// request only once. If Create fails and may have sent the request again, its error must wrap
	// ErrResent. For example, client-go sends a request again after a Retry-After. NoteResent adds
	// ErrResent in this case.
	Create(ctx context.Context, child C) (C, error)
	// Delete deletes the child, with the given options and their preconditions.
	Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error
	// Patch sends the patch to the child itself, not to a subresource, and returns
	// the whole child as the server stored it.
	Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error)
	// Get reads a child.
	Get(ctx context.Context, namespace, name string) (C, error)
	// List returns the children in the namespace whose labels match the selector. For namespace "", List
	// returns the matching children in all namespaces, which Kind.ClusterScoped needs. The list must not be
	// older than the call, so send no resourceVersion, not even "0". If List reads several pages with
	// different resourceVersions, List must return an error. The Controller does not change the returned
	// children.
	List(ctx context.Context, namespace string, matching labels.Selector) (List[C], error)
	// GetOwner reads an owner. The Controller may change the returned owner.
	GetOwner(ctx context.Context, namespace, name string) (O, error)
	// PatchStatus sends a JSON merge patch to the status subresource of the owner, and returns the whole
	// owner as the server stored it. The patch has the owner's UID and resourceVersion, so the server must
	// answer with a Conflict if the owner has changed. The argument owner has the new status, but lacks the
	// fields that the cache dropped, so do not send that object. If your client can only update, see the
	// example StatusByUpdate.
	PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error)
}

// A Versioner is a Client that can also return the server's current resourceVersion for owners and for
// children. With a Versioner, a new process need not read an owner that was written after the process
// began. If the cache also returns its version, the new process needs one small list of children, instead
// of a live list for each owner.
type Versioner interface {
	// ServerOwnersVersion lists the owners in a namespace, and ServerChildrenVersion lists the children.
	// Both return the resourceVersion of their list. For namespace "", the list is of all namespaces. The
	// list must not be older than the call, but may be limited to one object. If the version is not known,
	// return an error or "".
	ServerOwnersVersion(ctx context.Context, namespace string) (string, error)
	ServerChildrenVersion(ctx context.Context, namespace string) (string, error)
}

// A Checker is a Client that can check whether its own settings are complete. Check makes no calls to the
// server. If Check returns an error, New returns this error.
type Checker interface{ Check() error }

// errNoObject is the error if the client returned neither an object nor an error.
var errNoObject = errors.New("the client returned no object")

// A List is the result of a live list.
type List[C Object] struct {
	Items []C
	// ResourceVersion is the resourceVersion of the list itself, or "" if it is not known.
	ResourceVersion string
}

// A Cache returns from memory what its watches have reported so far. The Controller works correctly
// even if the cache is incomplete or behind the server. The Controller does not change the returned
// objects, and does not keep the returned slices.
type Cache[O, C Object] interface {
	OwnerCache[O]
	// Children returns the owner's children in any state, and the orphans in the owner's namespace. If the
	// owner is in no namespace, Children returns the orphans in all namespaces. The list may have children
	// of other owners, which the Controller ignores.
	Children(ctx context.Context, owner O) ([]C, error)
	// Related returns the children for Spec.Related. The function replicas.Related can find them. Related
	// is called if the pass may have to delete a child. If Related returns nil or an error, the pass goes
	// on, but pods are not ranked by co-location.
	Related(ctx context.Context, owner O) ([]C, error)
	// OwnersVersion and ChildrenVersion return the resourceVersion up to which the cache shows all changes
	// of owners, or of children. If this version is not known, return "". Without the version of the
	// owners, no pass waits until the cache shows the last status write. Without the version of the
	// children, the numbers in Outcome.Counts are those of the cache.
	OwnersVersion() string
	ChildrenVersion() string
}

// An OwnerCache is the part of a Cache that event handlers use.
type OwnerCache[O Object] interface {
	// Owner returns the owner with this name. If the cache has no such owner, the error is a NotFound. The
	// cache may drop fields that Kind.Spec, Kind.Status and Kind.Prepare do not read, such as annotations
	// and managedFields.
	Owner(ctx context.Context, name types.NamespacedName) (O, error)
	// Owners returns the owners in a namespace. For namespace "", Owners returns all owners, which
	// Kind.ClusterScoped needs. Event handlers use this list to find the owners that may adopt an orphan.
	Owners(ctx context.Context, namespace string) ([]O, error)
}

// Enqueue requests a pass for an owner. If after is 0, the pass should run at once, and otherwise after
// that time. If there are several requests for one owner, the earliest request must lead to a pass. Enqueue
// may be called several times for one event. The method AddAfter of a work queue is an Enqueue.
type Enqueue func(owner types.NamespacedName, after time.Duration)

// An EventSink receives the events of a Controller. eventType is corev1.EventTypeNormal or
// corev1.EventTypeWarning. Several goroutines call Event at once, and Event should not block.
type EventSink interface {
	Event(owner metav1.Object, eventType, reason, message string)
}

// These are the reasons of a Controller's events, with their messages. "Sent once" means that
// the event is not sent again while the condition lasts. If a spec is refused, the event has the reason of
// the RefusedError. This reason is replicas.InvalidSelector, replicas.InvalidReplicas,
// replicas.InvalidTemplate, or one of the Kind's own.
const (
	SuccessfulCreate = "SuccessfulCreate"  // Created pod: <name>, where pod is the kind of the child in lower case
	FailedCreate     = "FailedCreate"      // Error creating: <error>
	SuccessfulDelete = "SuccessfulDelete"  // Deleted pod: <name>, with (<criterion>: <values>) if a criterion decided that Kubernetes lacks
	FailedDelete     = "FailedDelete"      // Error deleting: <error>
	FailedAdopt      = "FailedAdopt"       // Error adopting <name>: <error>. Sent once.
	FailedRelease    = "FailedRelease"     // Error releasing <name>: <error>. Sent once.
	DeletionsHeld    = "DeletionsHeld"     // Holding deletions for <time>: <why>. Sent once.
	CreationsHeld    = "CreationsHeld"     // Holding creations for <time>: <why>. Sent once.
	FailedOwner      = "FailedReadOwner"   // Error reading the owner: <error>. Nothing is deleted. Sent once.
	FailedList       = "FailedList"        // Error listing: <error>. The view is old, and a live list failed. Sent once.
	FailedLook       = "FailedLook"        // Error looking for pods: <error>. A call had no answer, and its place stays held. Sent once.
	FailedRelated    = "FailedRelatedPods" // Error listing related pods: <error>. Sent once.
	FailedStatus     = "FailedStatus"      // Error writing the status: <error>, with the right that is missing. Sent once.
	FailedSpec       = "FailedSpec"        // Kind.Spec failed: <error>. The pass is tried again. Sent once for each generation and text.
	InvalidStep      = "InvalidStep"       // <why the Step is invalid>. Nothing is created or deleted. Sent once for each generation and text.
	Panicked         = "Panicked"          // A function of the Kind or the client panicked, and the log has the stack: <value>
	ServerRestored   = "ServerRestored"    // <ErrRestored and its proof>. Sent once, about the first owner whose pass ends after the proof.
)

func nameOf(c metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}
}

// namespaceIsGoing reports whether a create failed because its namespace is
// being deleted, or is gone already.
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

// quotaIsFull reports whether a resource quota refused a create. Only the text of the error shows this.
func quotaIsFull(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// isFinal reports whether a failed creation did not take effect and never will.
func isFinal(err error) bool {
	return !errors.Is(err, ErrResent) && (isRefusal(err) || apierrors.IsAlreadyExists(err) || namespaceIsGoing(err))
}

// explained adds advice to an error about a child if the text of the server lacks this advice.
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

// needsFinalizers reports whether the admission plugin OwnerReferencesPermissionEnforcement refused an
// owner reference. Only the text of the error shows this.
func needsFinalizers(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot set blockOwnerDeletion")
}

// hasNoNamespace reports whether a create failed because the child had no namespace. Such a create makes no
// child, because the client refuses it or the server has no such path.
func hasNoNamespace(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || strings.Contains(err.Error(), "an empty namespace may not be set")
}

// MaxServerDelay is the longest time by which a Retry-After of the server delays the next pass for an
// owner.
const MaxServerDelay = 5 * time.Minute

// serverDelay returns the longest Retry-After among the errors, but at most MaxServerDelay. If no error has
// a Retry-After, it returns 0.
func serverDelay(errs []error) time.Duration {
	longest := 0
	for _, err := range errs {
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			longest = max(longest, seconds)
		}
	}
	return time.Duration(min(longest, int(MaxServerDelay/time.Second))) * time.Second
}

// isRefusal reports whether the server refused a call, so that the call had no effect and never will.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
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

// joinErrors is errors.Join, but leaves a single error as it is.
func joinErrors(a, b error) error {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return errors.Join(a, b)
}

// ErrResent is wrapped in the error of Client.Create if the client sent the request more than once. The
// server may have created the child for the first request, although it refused the second request. So the
// Controller looks for the child on the server, and does not forget the child's name.
var ErrResent = errors.New("the request was sent more than once")

// NoteResent calls send, which must make one call over net/http. If the request was sent more than once and
// send fails, NoteResent adds ErrResent to the error. client-go sends a request again by itself if the
// server answers 429 or 5xx with Retry-After. NoteResent is for the Create method of a Client:
//
//	err = controller.NoteResent(ctx, func(ctx context.Context) error {
//		created, err = pods.Create(ctx, pod, metav1.CreateOptions{})
//		return err
//	})
//
// NoteResent counts the requests that net/http/httptrace reports. If an http.RoundTripper does not use an
// http.Transport, httptrace may report no requests. NoteResent then returns the error unchanged.
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

// maxReasonsTold is how many different failures the text of a summary lists at most.
const maxReasonsTold = 10

// A summary is the error of a run of calls, with a text of one line. For example, if a quota refuses
// sixteen pods, the text has one reason instead of sixteen.
type summary struct {
	error
	text string
}

func (s *summary) Error() string { return s.text }

func (s *summary) Unwrap() error { return s.error }

// summarize returns run.Err with a shorter text. If failures differ only in the name of the object, the
// text has one of them and the number of the others.
func summarize(run slowstart.Result) error {
	if len(run.Failed) < 2 {
		return run.Err
	}
	var reasons, texts []string
	alike := map[string]int{}
	for _, f := range run.Failed {
		reason := withoutName(f.Err)
		if alike[reason]++; alike[reason] == 1 {
			reasons, texts = append(reasons, reason), append(texts, f.Err.Error())
		}
	}
	for i, reason := range reasons {
		if n := alike[reason]; n > 1 {
			texts[i] += fmt.Sprintf(" (and %d more like it)", n-1)
		}
	}
	if more := len(texts) - maxReasonsTold; more > 0 {
		texts = append(texts[:maxReasonsTold], fmt.Sprintf("(%d other reasons left out)", more))
	}
	return &summary{run.Err, strings.Join(texts, "; ")}
}

// withoutName returns an error's text without the name of the object that the
// server refused.
func withoutName(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Name == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), strconv.Quote(status.Status().Details.Name), "")
}

// withoutNames returns an error's text without the name of the object, or "" for a nil error.
func withoutNames(err error) string {
	if err == nil {
		return ""
	}
	return withoutName(err)
}
