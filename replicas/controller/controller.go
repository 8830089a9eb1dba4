// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// A Kind says all that differs between kinds of owners. O and C are the pointer
// types of owners and children, such as *appsv1.ReplicaSet and *corev1.Pod.
// ReplicaSets and ReplicationControllers return a Kind each. The functions of a
// Kind are called by several goroutines at once. They must not block, and must not
// change what they are given, except where their comments say so.
type Kind[O, C Object] struct {
	// Owner and Child are the kinds of owners and children. Required.
	Owner, Child schema.GroupVersionKind
	// ClusterScoped says that owners are in no namespace. Then children are where
	// Spec.New puts them: in one namespace, in several, or in none. Orphans of
	// all namespaces are adopted, and live lists are of all namespaces. If it is
	// false, an owner and its children are in one namespace. A pass for an owner
	// that is not as ClusterScoped says returns an error, and does nothing.
	ClusterScoped bool

	// Spec returns what an owner wants. The Controller sets Owner, Kind, Now,
	// Names, Pending, PendingFor and, if it is nil, Related. To PendingAdoptions it adds
	// the orphans whose adoption is not decided. For children that are not pods,
	// New must be set.
	//
	// Return a *replicas.RefusedError if only a change of the owner can help: it is
	// told by one event for each generation of the owner and each text, and nothing is
	// done until the owner changes. The same holds for such an error of New: then
	// nothing is created; and of BeforeScale: then nothing is created or deleted.
	//
	// The answer must depend on the owner alone. It may depend on the owner's
	// status: if a status that the Controller wrote changes a number, a limit, a
	// time or the selector of the Spec, or what the Rules say about a child,
	// another pass follows. If it changes only New, Template or Order, none does.
	// Required.
	Spec func(owner O) (replicas.Spec[C], error)

	// Status brings the status of owner up to date. owner is a copy; only its
	// status may be changed. Status is called after each pass that could count the
	// children. If the write meets a Conflict, Status is called again with a fresh
	// copy. If Status is nil, no status is written.
	Status func(owner O, outcome Outcome[C]) error
	// StatusOf returns the owner's status, or a pointer to it. The status is
	// written only if Status has changed that. If StatusOf is nil, whole owners are
	// compared, which takes longer.
	StatusOf func(owner O) any

	// PatchType is the type of the patches that adopt and release: strategic merge
	// patches for kinds that Kubernetes itself serves, merge patches for custom
	// resources. "" chooses by the group of the children: strategic if it is empty,
	// has no dot or ends in ".k8s.io", merge otherwise.
	PatchType types.PatchType

	// BeforeScale is called before anything is created or deleted, with the active
	// children and the plan, and returns what shall be done now. It may leave out
	// deletions, by returning fewer, and creations, by returning a lower Create: the
	// last ones of the plan are then left out, whatever Names says. If it adds or
	// changes any, the pass returns an error and does nothing. The lists are its own:
	// it may change them in place.
	//
	// What was left out has its turn in the next pass: when a child or the owner
	// changes, or after the time again, if that is earlier. If again is 0, no pass
	// follows because of what was left out; negative is refused. If BeforeScale
	// returns an error, nothing is created or deleted. Sync returns the error, and
	// again, if it is positive, in place of your rate limiter's delay.
	//
	// BeforeScale may make calls with ctx, which is that of Sync: only this owner and
	// one worker wait for them. All other functions of a Kind must not block.
	//
	// If a Conflict shows that the view was old, BeforeScale is called again with the
	// deletions that are left and the active children of a live list. A child whose
	// deletion had no answer is not among the active ones, unless it is to be deleted
	// again.
	//
	// If children that must go stay, because their deletions were left out, failed
	// or are held, and others are missing, BeforeScale is called once more, with
	// the creations. If it is nil, the whole plan is carried out.
	BeforeScale func(ctx context.Context, owner O, active []C, scale replicas.Scale[C]) (now replicas.Scale[C], again time.Duration, err error)

	// Observe is called at the end of every pass: use it for metrics and logs. It
	// may be nil.
	Observe func(ctx context.Context, pass Pass[O, C])
}

// Options are the settings of a Controller. Each zero field means its default.
type Options struct {
	// Now tells the time. nil means time.Now.
	Now func() time.Time
	// Random returns a number from 0 to n-1. It is used for the names of children,
	// and to spread what would otherwise happen at one moment. It is called by
	// several goroutines at once. nil means rand.IntN of math/rand/v2.
	Random func(n int) int
	// Events takes the events about owners. If it is nil, or a nil pointer, there
	// are none.
	Events EventSink
	// MaxParallel is how many calls may be under way at once for one owner. 0 means
	// DefaultMaxParallel; negative is refused. If it is 1, the goroutine that
	// called Sync makes the calls, one after the other.
	MaxParallel int
	// ExpectationsTimeout is how long a write may stay unseen before the cache counts
	// as old. For creations and deletions up to a tenth is added at random, so that
	// owners that wait for the same watch do not all list at one moment. 0 means expectations.DefaultTimeout; negative is refused.
	ExpectationsTimeout time.Duration
	// BackOffFailed holds creations if children end soon after they were created, such as
	// pods that a node refuses. As many creations wait as children of the last round
	// ended; others that are missing are created. A child counts if it is no longer active
	// after less than ten minutes, or if somebody else deleted it within ten seconds. The
	// hold lasts for 10 seconds, doubling with each such round to 5 minutes, times the
	// share of the round that ended, and for a second at least. A round of which none
	// ended starts it anew, and a new generation of the owner ends it. If BackOffFailed is
	// false, such an owner creates as fast as it can, as in Kubernetes.
	BackOffFailed bool
	// StatusDelay is how long a pass may wait if the update of a child can change
	// nothing but the owner's status, because the child became ready, for example.
	// With a delay of one second, a hundred such updates a second lead to one
	// status write a second for each owner. An update does not wait if it changes
	// the child's labels, owner or deletion, or whether the child is active, must
	// go or must stay; nor if the Spec has MaxDeletions. A BeforeScale that waits
	// until children are ready is called later by that delay. 0 means that no pass
	// waits, as in Kubernetes; negative is refused.
	StatusDelay time.Duration
	// Record is called at the end of each pass that looked at its owner, after
	// Kind.Observe, with all that the pass was decided by. Keep some Recordings to answer
	// later why a child was deleted, and to play the pass again with Replay. Record is
	// called by several goroutines at once, and must not block. nil means that nothing is
	// recorded, which costs nothing.
	Record func(Recording)
}

// DefaultMaxParallel is how many calls are under way at once for one owner if
// Options.MaxParallel is 0.
const DefaultMaxParallel = 128

// A Controller keeps the children of all owners of one kind on one API server. New
// makes it; a zero Controller returns errors. It must not be copied. All methods
// may be called by several goroutines at once, but Sync not twice at once for one
// owner: a work queue takes care of that.
type Controller struct {
	reconciler syncer // nil if New did not make it
	handlers   Handlers
	pending    *expectations.Store[expectations.Key]
}

// A syncer is a reconciler of whatever owners and children.
type syncer interface {
	newTerm()
	sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error)
	metrics() []Sample
}

// New returns a Controller for the owners of a kind. The event handlers ask for
// passes at enqueue, unless they are given another Enqueue. It is an error if
// client, cache or enqueue is nil, if the Kind can never work, or if an option is
// negative.
func New[O, C Object](kind Kind[O, C], client Client[O, C], cache Cache[O, C], enqueue Enqueue, opts Options) (*Controller, error) {
	if err := kind.check(); err != nil {
		return nil, err
	}
	switch {
	case object.IsNil(client):
		return nil, errors.New("controller: client is nil")
	case object.IsNil(cache):
		return nil, errors.New("controller: cache is nil")
	case enqueue == nil:
		return nil, errors.New("controller: enqueue is nil")
	case opts.MaxParallel < 0:
		return nil, fmt.Errorf("controller: MaxParallel %d is negative", opts.MaxParallel)
	case opts.StatusDelay < 0:
		return nil, fmt.Errorf("controller: StatusDelay %v is negative", opts.StatusDelay)
	case opts.ExpectationsTimeout < 0:
		return nil, fmt.Errorf("controller: ExpectationsTimeout %v is negative", opts.ExpectationsTimeout)
	}
	r := newReconciler(kind, client, cache, opts.withDefaults())
	return &Controller{reconciler: r, handlers: Handlers{&r.watcher, enqueue}, pending: r.pending}, nil
}

func (k Kind[O, C]) check() error {
	switch {
	case k.Owner.Kind == "" || k.Owner.Version == "":
		return fmt.Errorf("controller: kind: Owner %q is incomplete", k.Owner)
	case k.Child.Kind == "" || k.Child.Version == "":
		return fmt.Errorf("controller: kind %s: Child %q is incomplete", k.Owner.Kind, k.Child)
	case k.Spec == nil:
		return fmt.Errorf("controller: kind %s has no Spec", k.Owner.Kind)
	}
	switch k.PatchType {
	case "", types.StrategicMergePatchType, types.MergePatchType:
		return nil
	}
	return fmt.Errorf("controller: kind %s: PatchType %q is neither a strategic nor a JSON merge patch", k.Owner.Kind, k.PatchType)
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.IntN
	}
	if object.IsNil(o.Events) {
		o.Events = nil
	}
	if o.MaxParallel == 0 {
		o.MaxParallel = DefaultMaxParallel
	}
	if o.ExpectationsTimeout == 0 {
		o.ExpectationsTimeout = expectations.DefaultTimeout
	}
	return o
}

// An Outcome is what the status of an owner is made from.
type Outcome[C Object] struct {
	// Counts are the numbers of children, by the Rules of the Spec. If
	// Cache.ChildrenVersion tells how far the cache has come, they are as the pass
	// leaves them, even if the cache does not show it yet: children that it created
	// count, children that it deleted count as terminating or not at all. Otherwise
	// they are the numbers of Active and Terminating.
	Counts status.Counts
	// Active are the active children as they were before the pass created or
	// deleted any; Terminating are the children that are being deleted and are not
	// active.
	Active, Terminating []C
	// Desired is how many children were wanted when the pass began, and Generation
	// the owner's generation then.
	Desired    int32
	Generation int64
	// Waiting reports whether the pass left the number of children alone because
	// something else must happen first: expectations, an old cache, a hold, a
	// failed claim, a Conflict, or the deletion of the owner.
	Waiting bool
	// ScaleErr is why a creation or deletion failed; nil if none did.
	ScaleErr error
	// Now is the instant for which everything was judged.
	Now time.Time

	undeleted bool // ScaleErr is of deletions alone
}

// Failure returns the argument for status.SetFailure, which makes the
// ReplicaFailure condition from it. If nothing but deletions failed, Active of the
// result is more than Desired, so that the reason is FailedDelete, even if the
// deletions were of children that must go and there are not too many.
func (o Outcome[C]) Failure() status.Failure {
	f := status.Failure{
		Err: o.ScaleErr, Waiting: o.Waiting, Active: int32(len(o.Active)), Desired: &o.Desired,
		ObservedGeneration: o.Generation, Now: o.Now,
	}
	if o.undeleted && f.Active <= o.Desired && o.Desired < math.MaxInt32 {
		f.Active = o.Desired + 1
	}
	return f
}

// A Pass tells what one call of Sync did for an owner. Its lists point to the
// children as the pass last saw them. Read only.
type Pass[O, C Object] struct {
	// Name is the owner's name. Owner is the owner as the cache has it or, if that has
	// been behind for some seconds, as the server has it; nil if there is none, or if
	// the pass did not read it because the cache was behind.
	Name  types.NamespacedName
	Owner O
	Outcome[C]
	// Stale says which cache does not show a write of an earlier pass yet; this
	// pass then did nothing. It is zero otherwise.
	Stale expectations.Stale
	// Scale is what the pass set out to create or delete, after BeforeScale. It is
	// both if children that must go could not be deleted and others were missing.
	Scale replicas.Scale[C]
	// Adopted and Released are the children of successful patches; Released also
	// has those that turned out to be gone. AdoptionRejected are orphans that the server
	// does not let the owner adopt. AdoptionPending are orphans whose adoption failed,
	// but that may become the owner's: none is created in their place.
	Adopted, Released, AdoptionRejected, AdoptionPending []C
	// Created and Deleted are the children of successful calls. Created also has
	// those that were found on the server after the call had failed.
	Created, Deleted []C
	// Failed counts the calls that failed, and the adoptions that were not tried
	// because the owner may not adopt. Skipped counts the creations that slow start
	// did not try after a failure.
	Failed, Skipped int
	// InFlight counts the names under which creations were sent that may have taken
	// effect or may do so yet. Refused creations do not count. The names are sent again
	// or looked for.
	InFlight int
	// Conflicts counts the delete calls that met a Conflict. LiveLists counts the
	// lists of children that did not use the cache, LiveReads such reads of one
	// child.
	Conflicts, LiveLists, LiveReads int
	// ViewWasStale reports whether the children were listed live because the cache
	// was known to be old.
	ViewWasStale bool
	// OwnerWasStale reports whether calls of the Controller have shown that the owner is
	// gone, is being deleted, or wants something else than the one in the cache: then
	// nothing was created or deleted by that one.
	OwnerWasStale bool
	// OwnerErr is why the owner could not be read from the server before children were
	// deleted, before an adoption, or before or after a status write.
	OwnerErr error
	// LookErr is why nothing was created, or deleted, if that is because a child could not
	// be read from the server. An earlier creation or deletion of it had no answer.
	LookErr error
	// Restored reports whether such a list was older than the cache: then the
	// server was restored from a backup.
	Restored bool
	// BackedOff reports whether creations or deletions were not tried because an earlier
	// pass had put them off.
	BackedOff bool
	// Observed reports whether the children were listed and a plan was made. If
	// not, there was nothing to make a status from.
	Observed bool
	// Status is the owner as the server stored it with its new status; nil if none
	// was written.
	Status O
	// StatusErr is why the status could not be written; nil if it could, or did not
	// have to be. If nothing else failed, it is the same as Err.
	StatusErr error
	// RelatedErr is why pods were not ranked by co-location; nil if Cache.Related
	// returned no error.
	RelatedErr error
	// RequeueAfter and Err are what Sync returned. If the spec is refused, Err is a
	// *replicas.RefusedError, although Sync returned nil.
	RequeueAfter time.Duration
	Err          error
	// Took is how long the pass took.
	Took time.Duration
}

// Expectations returns the record of what passes have started and no event has
// confirmed yet: for metrics and tests. Passes and events settle it by themselves.
// It is never nil.
func (c *Controller) Expectations() *expectations.Store[expectations.Key] {
	if c == nil || c.pending == nil {
		return &expectations.Store[expectations.Key]{}
	}
	return c.pending
}

// NewTerm tells the Controller that another process may have been at work since its last
// pass: call it when leadership, or a range of owners, was taken over anew. A Controller
// that has not made a pass yet needs no call. The caches may be older than what the other
// process saw, so before the first pass for an owner that creates or deletes there is one
// look at the server; see Sync.
func (c *Controller) NewTerm() {
	if c != nil && c.reconciler != nil {
		c.reconciler.newTerm()
	}
}

// events returns the handlers of the Controller.
func (c *Controller) events() *Handlers {
	if c == nil {
		return nil
	}
	return &c.handlers
}

// childNoun is the word for a child in events: the kind in lower case, as kubectl has it.
func (r *reconciler[O, C]) childNoun() string { return strings.ToLower(r.kind.Child.Kind) }

// resource is what writes of a kind are recorded under.
func resource(kind schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}
