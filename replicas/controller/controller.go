package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// A Kind is all that differs between kinds of owners: O and C are pointer types,
// such as *appsv1.ReplicaSet and *corev1.Pod. ReplicaSets and
// ReplicationControllers return two of them. Its functions are called from many
// goroutines at once, must change nothing but what they say, and must not block.
type Kind[O, C Object] struct {
	// Owner and Child are the kinds of both. Required.
	Owner, Child schema.GroupVersionKind
	// ClusterScoped says that owners are in no namespace. Their children are then
	// where New of the Spec puts them: in one namespace, in several, or in none;
	// orphans of all namespaces are adopted, and live lists are of all namespaces.
	// false: owners are in a namespace, and their children in the same. An owner for
	// which it is not so is an error of its passes, and nothing is done.
	ClusterScoped bool

	// Spec returns what an owner wants. Owner, Kind, Now, Related, Names and what
	// is known of the view are filled in by the Controller. For children that are
	// no pods, New is required. An error that no other pass will mend should be a
	// *replicas.RefusedError: it is told by an event, once for each generation of
	// the owner, and nothing is done until the owner changes; so for an error of
	// New in it. The answer must depend on the owner alone, and not on what Status
	// writes: an update that shows nothing else asks for no pass. Required.
	Spec func(owner O) (replicas.SpecOf[C], error)

	// Status brings the status of an owner up to date. The owner is a copy, and
	// nothing but its status may be changed. It is called after each pass in which
	// the children could be counted, and once more, on a fresh copy, if the write
	// met a Conflict. nil: there is no status step.
	Status func(owner O, outcome Outcome[C]) error
	// StatusOf returns the owner's status, or a pointer to it: it is written if
	// Status changed that. nil: all of the owner is compared, which takes longer.
	StatusOf func(owner O) any

	// PatchType is that of the patches that adopt and release: strategic merge
	// patches for kinds that Kubernetes itself serves, merge patches for custom
	// resources. "" means strategic for children whose group is empty or has no
	// dot or ends in ".k8s.io", and merge for all others.
	PatchType types.PatchType

	// BeforeScale is called before anything is created or deleted, with the
	// active children and what is about to be done, and returns what shall be
	// done. It may leave out creations or deletions: to add any, or to change
	// one, is an error, and nothing is done then. Nobody looks at the owner again
	// because of what was left out: see to a pass yourself. If children that must go
	// stay, because their deletions were left out, failed or are held, and others are
	// missing, it is called once more, with the creations. nil: all is done.
	BeforeScale func(ctx context.Context, owner O, active []C, scale replicas.ScaleOf[C]) replicas.ScaleOf[C]

	// Observe is told of every pass when it has ended: the place for metrics and
	// logs. nil: nobody is.
	Observe func(ctx context.Context, pass Pass[O, C])
}

// Options are settings of a Controller. Each zero field means its default.
type Options struct {
	// Now is the clock that everything goes by; nil means time.Now.
	Now func() time.Time
	// Random returns a number from 0 to n-1. It makes the names of children, and
	// spreads what would happen at one moment. nil means that of math/rand/v2.
	// It is called from many goroutines at once.
	Random func(n int) int
	// Events is told what was done. nil: nobody is.
	Events EventSink
	// MaxParallel caps the calls under way at once for one owner. 0 means
	// DefaultMaxParallel; negative is refused. At 1 every call is made inline, in
	// order, without a goroutine.
	MaxParallel int
	// ExpectationsTimeout is how long a watch event may take before the cache is
	// taken to be old; up to a tenth is added at random, so that owners that wait
	// for the same watch do not all list at one moment. 0 means
	// expectations.DefaultTimeout; negative is refused.
	ExpectationsTimeout time.Duration
	// BackOffFailed holds creations for owners whose children end as soon as
	// they were created, such as pods that the node refuses: for 10 seconds after
	// the first, doubling to 5 minutes. Off, as in Kubernetes, such an owner
	// creates as fast as it can.
	BackOffFailed bool
	// StatusDelay is how long a pass may wait if the update of a child can change
	// nothing but the status of its owner: the child became ready, for example. With
	// a delay of one second, a hundred such updates a second become one status write
	// a second for each owner. Passes for any other reason do not wait: changes of the
	// owner, of a child's labels, owner or deletion, of whether it counts as a
	// replica, must go or must stay, and all updates if MaxDeletions is set. A
	// Kind.BeforeScale that waits for children to become ready is asked so much later.
	// 0: none waits, as in Kubernetes; negative is refused.
	StatusDelay time.Duration
}

// DefaultMaxParallel is how many calls are under way at once for one owner if
// Options.MaxParallel is 0.
const DefaultMaxParallel = 128

// A Controller keeps the children of all owners of one kind on one server. New
// makes one: the methods of any other return an error. It must not be copied. All
// methods may be called from any number of goroutines, but Sync not twice at once
// for one owner: a work queue sees to that.
type Controller struct {
	reconciler syncer // nil if New did not make it
	handlers   Handlers
	pending    *expectations.Store[expectations.Key]
}

// A syncer is a reconciler of whatever owners and children.
type syncer interface {
	sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error)
	metrics() []Sample
}

// New returns a Controller for owners of a kind. enqueue is where the event
// handlers ask for passes, unless they are given another. A part that is missing,
// or a Kind that can never work, is an error.
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
	// Counts are those of the children by the Rules of the Spec, as the pass leaves
	// them if Cache.ChildrenVersion tells how far the cache has come: what was
	// created counts, and what was deleted counts as terminating or no more, though
	// the cache does not show it yet. Else they are those of Active and Terminating.
	Counts status.Counts
	// Active are the active children before anything was created or deleted,
	// Terminating those being deleted.
	Active, Terminating []C
	// Desired is how many were wanted, and Generation the owner's generation, when
	// the pass began.
	Desired    int32
	Generation int64
	// Waiting reports whether the number of children was left alone because
	// something must happen first: expectations, a stale cache, a hold, a failed
	// claim, a conflict, the deletion of the owner.
	Waiting bool
	// ScaleErr is why creating or deleting failed, nil if it did not.
	ScaleErr error
	// Now is the instant that everything was judged at.
	Now time.Time
}

// Failure is what status.SetFailure makes the ReplicaFailure condition from.
func (o Outcome[C]) Failure() status.Failure {
	return status.Failure{
		Err: o.ScaleErr, Waiting: o.Waiting, Active: int32(len(o.Active)), Desired: &o.Desired,
		ObservedGeneration: o.Generation, Now: o.Now,
	}
}

// A Pass tells what Sync did for an owner. Its lists point to the children as the
// pass last saw them; all is read only.
type Pass[O, C Object] struct {
	// Name is the owner's. Owner is nil if there is none, or if the cache was
	// stale.
	Name  types.NamespacedName
	Owner O
	Outcome[C]
	// Stale tells which cache had not come as far as an earlier pass wrote: then
	// this one did nothing.
	Stale expectations.Stale
	// Scale is what was to be created or deleted.
	Scale replicas.ScaleOf[C]
	// Adopted and Released were patched, Released also if the child turned out to
	// be gone. SetAside were not adopted, as a policy or another owner forbids
	// it. Undecided are orphans whose adoption failed and that may be the owner's
	// yet: none is created in their stead.
	Adopted, Released, SetAside, Undecided []C
	// Created and Deleted are the calls that succeeded; Created also what a look
	// at the server found after the answer was lost.
	Created, Deleted []C
	// Failed counts the calls that failed, and the adoptions that were not tried
	// as the owner must not adopt; Skipped the creations that slow start did not
	// try after a failure.
	Failed, Skipped int
	// Unresolved counts the creations of which it is not known whether they will
	// take effect. They are tried again under the same names.
	Unresolved int
	// Conflicts counts the delete calls that met a Conflict; LiveLists and
	// LiveReads the lists of children, and the reads of one, past the cache.
	Conflicts, LiveLists, LiveReads int
	// ViewWasOld reports whether the cache was known to be old, so that the
	// children were listed live.
	ViewWasOld bool
	// Restored reports whether such a list was older than the cache: the server
	// was restored from a backup.
	Restored bool
	// Held reports whether creations or deletions were not tried, as they were
	// put off in an earlier pass.
	Held bool
	// Observed reports whether the children were listed and claimed: if not,
	// there was nothing to write a status from.
	Observed bool
	// Status is the owner as its status was written, nil if it was not.
	Status O
	// StatusErr is why the status was not written, if so. It is Err itself if
	// nothing else failed.
	StatusErr error
	// RelatedErr is why there was no ranking by co-location, if so.
	RelatedErr error
	// RequeueAfter and Err are what Sync returned, but Err may also be a
	// *replicas.RefusedError.
	RequeueAfter time.Duration
	Err          error
	// Took is how long the pass took.
	Took time.Duration
}

// Expectations returns what passes have started and events have not confirmed:
// for metrics. Passes and events settle it by themselves.
func (c *Controller) Expectations() *expectations.Store[expectations.Key] {
	if c == nil || c.pending == nil {
		return &expectations.Store[expectations.Key]{}
	}
	return c.pending
}

// events returns the handlers of the Controller.
func (c *Controller) events() *Handlers {
	if c == nil {
		return nil
	}
	return &c.handlers
}

// resource is what writes of a kind are recorded under.
func resource(kind schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}
