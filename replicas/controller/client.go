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

// An Object is an API object, which is a pointer to a type of Kubernetes or of your own.
type Object interface {
	metav1.Object
	runtime.Object
}

// A Client makes calls to the API server, and reads no cache. Errors must be the API
// server's, wrapped with %w at most, because the Controller depends on NotFound,
// Conflict, Invalid and Retry-After.
//
// Several goroutines call the methods at once, up to Options.MaxParallel for each
// owner. The methods must not change their arguments, except the child of Create.
// They must not send events, because the Controller does.
type Client[O, C Object] interface {
	// Create creates the child in its namespace, and returns it as the server stored it.
	// Create may change the child that it is given, because no other code has it. Create must
	// send the request only once. If Create fails, and may have sent the request again, as
	// client-go does after a Retry-After, its error must wrap ErrResent. NoteResent adds that.
	Create(ctx context.Context, child C) (C, error)
	// Delete deletes the child, with the given options and their preconditions.
	Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error
	// Patch sends the patch to the child itself, not to a subresource, and returns
	// the whole child as the server stored it.
	Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error)
	// Get reads a child.
	Get(ctx context.Context, namespace, name string) (C, error)
	// List returns the children of the namespace that the selector matches. For namespace "",
	// which Kind.ClusterScoped needs, it returns those of all namespaces. The list must be as new
	// as the call, so send no resourceVersion, not even "0". If it is read in pages, all must
	// have one version, or List returns an error. The Controller does not change the children.
	List(ctx context.Context, namespace string, matching labels.Selector) (List[C], error)
	// GetOwner reads an owner. The Controller may change what it returns.
	GetOwner(ctx context.Context, namespace, name string) (O, error)
	// PatchStatus sends the patch, a JSON merge patch, to the status sub-resource of the owner, and
	// returns the whole owner as the server stored it. The patch has the owner's UID and
	// resourceVersion, so it must fail with a Conflict if the owner on the server has another
	// version. The owner that is given has the new status. Do not send that owner, because it lacks
	// what the cache dropped. The example StatusByUpdate is for a client that can only update.
	PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error)
}

// A Versioner is a Client that can return how far the server has come. Then a new process
// needs no read of an owner that was written since the process began. If the cache also
// returns its version, one small list of children replaces a live list for each owner.
type Versioner interface {
	// ServerOwnersVersion and ServerChildrenVersion return the resourceVersion of a
	// list of the owners, or of the children, of a namespace, or of all namespaces if
	// it is "". The list must be as new as the call, like that of Client.List, but one
	// object of it is enough. An error, or "", means that the version is not known.
	ServerOwnersVersion(ctx context.Context, namespace string) (string, error)
	ServerChildrenVersion(ctx context.Context, namespace string) (string, error)
}

// A Checker is a Client that knows whether it was made from all that it needs. Check
// makes no call. If Check returns an error, New returns it.
type Checker interface{ Check() error }

// errNoObject is the error for an answer without an object and without an error,
// which says nothing.
var errNoObject = errors.New("the client returned no object")

// A List is the result of a live list.
type List[C Object] struct {
	Items []C
	// ResourceVersion is the version of the list itself, "" if it is not known.
	ResourceVersion string
}

// A Cache answers from memory what the watches have reported so far. The cache may be
// incomplete and behind, which the Controller handles. The Controller does not change
// what the cache returns, and does not keep the slices.
type Cache[O, C Object] interface {
	OwnerCache[O]
	// Children returns the owner's children, in any state, and the orphans of its
	// namespace. If the owner is in none, it returns the orphans of all namespaces.
	// The list may have other children, which the Controller ignores.
	Children(ctx context.Context, owner O) ([]C, error)
	// Related returns the children for Spec.Related, which the function replicas.Related
	// finds. It is called if the pass may have to delete something. If it returns nil or
	// an error, the pass goes on, and pods are not ranked by co-location.
	Related(ctx context.Context, owner O) ([]C, error)
	// OwnersVersion and ChildrenVersion return the resourceVersion up to which Owner and Children
	// show everything. If it is not known, they return "". Then no pass waits until the cache shows
	// the status that was written last, and the numbers of Outcome.Counts are those of the cache.
	OwnersVersion() string
	ChildrenVersion() string
}

// An OwnerCache is the part of a Cache that event handlers read.
type OwnerCache[O Object] interface {
	// Owner returns an owner. If there is none with this name, the error is a
	// NotFound. A transform of the cache may drop what Kind.Spec, Kind.Status and
	// Kind.Prepare do not read, such as annotations and managedFields.
	Owner(ctx context.Context, name types.NamespacedName) (O, error)
	// Owners returns the owners of a namespace. For namespace "", which Kind.ClusterScoped
	// needs, it returns all owners. One of them may want to adopt an orphan.
	Owners(ctx context.Context, namespace string) ([]O, error)
}

// Enqueue asks for a pass for an owner, at once if after is 0, else after that time.
// If there are several requests for one owner, the earliest must be served. Enqueue
// may be called several times for one event. AddAfter of a work queue is an Enqueue.
type Enqueue func(owner types.NamespacedName, after time.Duration)

// An EventSink takes the events of a Controller. eventType is corev1.EventTypeNormal or
// corev1.EventTypeWarning. Several goroutines call Event at once, and it should not block.
type EventSink interface {
	Event(owner metav1.Object, eventType, reason, message string)
}

// The reasons of a Controller's events, with their messages. An event about a
// refused spec has the reason of the RefusedError: replicas.InvalidSelector,
// replicas.InvalidReplicas, replicas.InvalidTemplate, or one of the Kind's own.
const (
	SuccessfulCreate = "SuccessfulCreate"  // Created pod: <name>, with the kind of the child in lower case
	FailedCreate     = "FailedCreate"      // Error creating: <error>
	SuccessfulDelete = "SuccessfulDelete"  // Deleted pod: <name>, and (<criterion>: <values>) if a criterion decided that Kubernetes does not have
	FailedDelete     = "FailedDelete"      // Error deleting: <error>
	FailedAdopt      = "FailedAdopt"       // Error adopting <name>: <error>; once while it lasts
	FailedRelease    = "FailedRelease"     // Error releasing <name>: <error>; once while it lasts
	DeletionsHeld    = "DeletionsHeld"     // Holding deletions for <time>: <why>; once while it lasts
	CreationsHeld    = "CreationsHeld"     // Holding creations for <time>: <why>; once while it lasts
	FailedOwner      = "FailedReadOwner"   // Error reading the owner: <error>; nothing is deleted; once while it lasts
	FailedList       = "FailedList"        // Error listing: <error>; the view is old, and a live list failed; once while it lasts
	FailedLook       = "FailedLook"        // Error looking for pods: <error>; a creation or deletion had no answer, and a look for the child failed, so its place is held; once while it lasts
	FailedRelated    = "FailedRelatedPods" // Error listing related pods: <error>; once while it lasts
	FailedStatus     = "FailedStatus"      // Error writing the status: <error>, with the right that is needed; once while it lasts
	FailedSpec       = "FailedSpec"        // <error of Kind.Spec that is no RefusedError>; the pass is tried again; once for each generation and text
	InvalidStep      = "InvalidStep"       // <what Kind.Prepare has added to a plan>; nothing is done; once for each generation and text
	Panicked         = "Panicked"          // <what a function of the Kind or the client panicked with>; the pass ended there
	ServerRestored   = "ServerRestored"    // <ErrRestored, and what proves it>; once for a Controller, about the owner whose pass ended first after that
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

// quotaIsFull reports whether a resource quota refused a create, which only the text
// of the error says.
func quotaIsFull(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// isFinal reports whether a creation that failed did not take effect, and never will.
func isFinal(err error) bool {
	return !errors.Is(err, ErrResent) && (isRefusal(err) || apierrors.IsAlreadyExists(err) || namespaceIsGoing(err))
}

// explained adds the remedy to an error about a child if the server's text lacks it.
func (p *pass[O, C]) explained(err error, child C) error {
	owner, kind := object.Name(p.Owner), p.kind.Owner
	switch {
	case err == nil:
		return nil
	case needsFinalizers(err):
		return fmt.Errorf("%w (%s %q: the right to update %s/finalizers in the group %q is missing, which blockOwnerDeletion of the children needs on this server)", err, kind.Kind, owner, p.ownerResource.Resource, kind.Group)
	case child.GetNamespace() == "" && p.kind.ClusterScoped && hasNoNamespace(err):
		return apierrors.NewBadRequest(fmt.Sprintf("%s %q is in no namespace, and its %s are in namespaces: New must give each of them one: %v", kind.Kind, owner, p.childResource.Resource, err))
	}
	return err
}

// needsFinalizers reports whether the admission plugin OwnerReferencesPermissionEnforcement
// refused a reference, which only the text of the error says.
func needsFinalizers(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot set blockOwnerDeletion")
}

// hasNoNamespace reports whether a create failed, and made nothing, because it had no
// namespace. Clients refuse such a create, or the server has no such path.
func hasNoNamespace(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || strings.Contains(err.Error(), "an empty namespace may not be set")
}

// MaxServerDelay is the longest delay of an owner's next pass because of a Retry-After of the
// server.
const MaxServerDelay = 5 * time.Minute

// serverDelay returns the longest Retry-After among the errors, at most
// MaxServerDelay, and 0 if none has one.
func serverDelay(errs []error) time.Duration {
	longest := 0
	for _, err := range errs {
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			longest = max(longest, seconds)
		}
	}
	return time.Duration(min(longest, int(MaxServerDelay/time.Second))) * time.Second
}

// isRefusal reports whether a call had no effect, and never will.
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

// onlyRefused reports whether a refused spec is the only error.
func onlyRefused(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it goes through the tree itself
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

// ErrResent is in the error of Client.Create if the client sent the request more than
// once. The server may have made the child at the first request although it refused
// the second. So the Controller looks for the child, and keeps its name.
var ErrResent = errors.New("the request was sent more than once")

// NoteResent calls send, which makes one call over net/http, and adds ErrResent to its
// error if the request was sent more than once. client-go sends it again by itself if the
// server answers 429 or 5xx with Retry-After. NoteResent is for the Create of a Client:
//
//	err = controller.NoteResent(ctx, func(ctx context.Context) error {
//		created, err = pods.Create(ctx, pod, metav1.CreateOptions{})
//		return err
//	})
//
// NoteResent counts what net/http/httptrace reports. An http.RoundTripper that does not
// end in an http.Transport may report nothing. Then NoteResent returns the error as it is.
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

// maxReasonsTold is how many different failures the text of a summary lists.
const maxReasonsTold = 10

// A summary is the error of a run in one line. For example, a quota that refuses
// sixteen pods gives one reason, not sixteen.
type summary struct {
	error
	text string
}

func (s *summary) Error() string { return s.text }

func (s *summary) Unwrap() error { return s.error }

// summarize returns run.Err, with a text that lists failures once, and counts them,
// if they differ only in the name of the object.
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

// withoutNames returns an error's text without the name of the object, "" for nil.
func withoutNames(err error) string {
	if err == nil {
		return ""
	}
	return withoutName(err)
}
