// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/slowstart"
)

// A Controller keeps the children of all owners of one kind on one API server. New
// makes a Controller, and a zero Controller returns errors. A Controller must not be
// copied. Several goroutines may call all methods at once, except Sync for the same
// owner. A work queue takes care of that.
type Controller struct {
	hidden
	reconciler syncer // nil if New did not make it
	handlers   Handlers
}

// hidden has inside.Ledgers, for this library's own tests.
type hidden = inside.Hidden

// A syncer is a reconciler without its types.
type syncer interface {
	newTerm(ctx context.Context, namespace string)
	sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error)
	metrics() []Sample
}

// New returns a Controller for the owners of a kind. The event handlers ask for
// passes with enqueue, unless they are given another Enqueue. New returns an error if
// client, cache or enqueue is nil, if the Kind can never work, if an option is
// negative, or if client is a Checker and Check fails.
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
	if c, ok := client.(Checker); ok {
		if err := c.Check(); err != nil {
			return nil, err
		}
	}
	r := newReconciler(kind, client, cache, opts.withDefaults())
	return &Controller{hidden: inside.Hide(&r.owners), reconciler: r, handlers: Handlers{&r.watcher, enqueue}}, nil
}

// Sync makes one pass for an owner. The pass adopts and releases children, creates in slow start
// or deletes, and writes the status. If the cache does not show the status that the Controller
// wrote last, the pass only asks for another one. The pass creates or deletes nothing on a view
// that is known to be stale, and a lost response never creates an extra child. docs/pass.md in
// this repository says when a pass reads the server, what it delays, and for how long.
//
// If err is nil and requeueAfter is positive, call Sync again after that time. If err is
// not nil and requeueAfter is positive, the server or a hold asks for this delay, so use
// it instead of your rate limiter's. If the spec is refused, err is nil, because only a
// change of the owner helps. An event reports the refusal, and Kind.Observe gets the
// error. If a call panics, the panic reaches the caller of Sync after the calls of the
// same batch have ended. While a pass for an owner is under way, Sync for the same owner
// returns an error at once. For other owners, any number of goroutines may call Sync.
//
// Differs from Kubernetes: a pass waits only for its own status write, and adds its other writes to
// what the cache shows. A live list replaces a stale view, and the owner is read before children
// are deleted. Names are chosen before a child is created, and failures are held back by their
// kind. The status is patched instead of put, so the cache may lack parts of the owner. A child
// that was released three times and is given back to the owner each time is left alone. Claims run
// in parallel, and every error is reported. The time at which the next child becomes available is
// computed from the children, not from the status that the server stored.
func (c *Controller) Sync(ctx context.Context, owner types.NamespacedName) (requeueAfter time.Duration, err error) {
	if c == nil || c.reconciler == nil {
		return 0, errors.New("controller: New did not make this Controller")
	}
	return c.reconciler.sync(ctx, owner)
}

// NewTerm says that from now on only this process is at work, and that another one
// may have been before. Call it after taking over leadership, or a range of owners.
// If the Controller has not made a pass yet, no call is needed.
//
// The caches may be older than what the other process saw. So the Controller looks at the server
// once for each owner, before it creates or deletes anything for that owner. NewTerm asks a
// Versioner how far the server has come. If a cache is filled after that, it is new enough, and no
// pass looks or waits. So call NewTerm before the informers are started, if the process is the only
// one then. The namespace is that of the informers, or "" if they watch all.
func (c *Controller) NewTerm(ctx context.Context, namespace string) {
	if c != nil && c.reconciler != nil {
		c.reconciler.newTerm(ctx, namespace)
	}
}

// Metrics returns the Controller's metrics, in a fixed order. They say what the
// passes did since New, and how many owners are in which state since their last pass.
// replicas/clientgo and replicas/controllerruntime give them to Prometheus.
func (c *Controller) Metrics() []Sample {
	if c == nil || c.reconciler == nil {
		return nil
	}
	return c.reconciler.metrics()
}

// events returns the handlers of the Controller.
func (c *Controller) events() *Handlers {
	if c == nil {
		return nil
	}
	return &c.handlers
}

// ChildAdded does what Handlers.ChildAdded does.
func (c *Controller) ChildAdded(obj any, q ...Enqueue) error {
	return c.events().ChildAdded(obj, q...)
}

// ChildUpdated does what Handlers.ChildUpdated does.
func (c *Controller) ChildUpdated(old, cur any, q ...Enqueue) error {
	return c.events().ChildUpdated(old, cur, q...)
}

// ChildDeleted does what Handlers.ChildDeleted does.
func (c *Controller) ChildDeleted(obj any, q ...Enqueue) error {
	return c.events().ChildDeleted(obj, q...)
}

// OwnerAdded does what Handlers.OwnerAdded does.
func (c *Controller) OwnerAdded(obj any, q ...Enqueue) error {
	return c.events().OwnerAdded(obj, q...)
}

// OwnerUpdated does what Handlers.OwnerUpdated does, with one exception. An update
// that shows only the status that the Controller itself wrote last asks for no pass,
// unless a pass waits for it or Kind.Spec wants something else because of it.
//
// Differs from Kubernetes: there each status write leads to another pass.
func (c *Controller) OwnerUpdated(old, cur any, q ...Enqueue) error {
	return c.events().OwnerUpdated(old, cur, q...)
}

// OwnerDeleted does what Handlers.OwnerDeleted does.
func (c *Controller) OwnerDeleted(obj any, q ...Enqueue) error {
	return c.events().OwnerDeleted(obj, q...)
}

// Options are the settings of a Controller. Each zero field means its default.
type Options struct {
	// Now returns the time. nil means time.Now.
	Now func() time.Time
	// Random returns a number from 0 to n-1. It is used for the names of children,
	// and to spread work that would otherwise happen at one moment. Several
	// goroutines call it at once. nil means rand.IntN of math/rand/v2.
	Random func(n int) int
	// Events takes the events about owners. If it is nil, or a nil pointer, none are sent.
	Events EventSink
	// MaxParallel is how many calls may be under way at once for one owner. 0 means
	// DefaultMaxParallel, and a negative value is refused. If it is 1, the goroutine
	// that called Sync makes the calls, one after the other.
	MaxParallel int
	// ExpectationsTimeout is how long a creation, deletion or status write may stay unseen
	// before the cache counts as old. For creations and deletions up to a tenth is added at
	// random for each owner, so that owners that wait for the same watch do not all list at
	// one moment. 0 means expectations.DefaultTimeout, and a negative value is refused.
	ExpectationsTimeout time.Duration
	// BackOffFailed holds creations if children end soon after they were created, such as pods
	// that a node refuses. As many creations wait as children of the last round ended. Other
	// missing children are created. A child counts if in less than ten minutes it is no longer
	// active, or the Rules say that it must go. It also counts if someone else deleted it within
	// 30 seconds. A child that Rules.Discard names counts only if it has failed. A child that
	// another owner has taken over does not count. The hold lasts for 10 seconds, doubling with
	// each such round to 5 minutes. The time is multiplied by the share of the round that ended,
	// and is at least a second. If all children of a round live, the hold starts again at 10
	// seconds. A new generation of the owner ends the hold. If BackOffFailed is false, such an
	// owner creates as fast as it can, as in Kubernetes. nil means true, except for pods.
	BackOffFailed *bool
	// StatusDelay is how long a pass may wait if the update of a child can change only the
	// owner's status, for example because the child became ready. With a delay of one
	// second, a hundred such updates a second lead to one status write a second for each
	// owner. An update does not wait if it changes the child's labels, owner or deletion, or
	// whether the child is active, must go or must stay. If the Spec has MaxDeletions, no
	// update waits. A Prepare that waits until children are ready is called later by that
	// delay. 0 means that no pass waits, as in Kubernetes. A negative value is refused.
	StatusDelay time.Duration
	// UnfilteredChildren says that the children in the cache are those of a watch without a
	// label or field selector. Then its DELETED events say that children are gone for good, and
	// a live list that has such a child proves that the server was restored. If it is false,
	// DELETED events prove nothing, because a child that leaves a selector has them too.
	UnfilteredChildren bool
	// OnRestored is called once, when the Controller has noticed that the server was restored.
	// The error wraps ErrRestored and says what proves it. OnRestored must not block. nil
	// means that Run of replicas/clientgo, and the manager of replicas/controllerruntime, end
	// with that error. A Controller alone only returns the error from Sync.
	OnRestored func(error)
}

// DefaultMaxParallel is how many calls are under way at once for one owner if
// Options.MaxParallel is 0.
const DefaultMaxParallel = 128

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

// A reconciler is a Controller with its types.
type reconciler[O, C Object] struct {
	watcher[O, C]
	client Client[O, C]
	cache  Cache[O, C]
	opts   Options
	writes *expectations.ConsistencyStore
	lists  *lists[C]
	owners owners[C]
	term   term
	// restores is shared with the guard of the client.
	restores *restores

	ownerResource, childResource schema.GroupResource
	patchType                    types.PatchType
	// statusCounts says that generations grow when a status is written.
	statusCounts atomic.Bool
	backOff      bool // Options.BackOffFailed, with its default
	measures     *measures[O, C]
}

func newReconciler[O, C Object](kind Kind[O, C], client Client[O, C], cache Cache[O, C], opts Options) *reconciler[O, C] {
	noticed := &restores{on: opts.OnRestored}
	client = guarded(client, cache, noticed)
	r := &reconciler[O, C]{
		client: client, cache: cache, opts: opts, restores: noticed,
		lists: newLists(client, opts),
		owners: owners[C]{patience: func() time.Duration { // partly random, so that not all list at one moment
			return opts.ExpectationsTimeout + time.Duration(opts.Random(int(opts.ExpectationsTimeout/10/time.Millisecond)+1))*time.Millisecond
		}},
		ownerResource: resource(kind.Owner), childResource: resource(kind.Child),
		patchType: patchTypeFor(kind.PatchType, kind.Child), measures: newMeasures[O, C](),
		backOff: kind.Child.GroupKind() != schema.GroupKind{Kind: "Pod"},
	}
	if opts.BackOffFailed != nil {
		r.backOff = *opts.BackOffFailed
	}
	r.kind, r.from, r.listener, r.statusDelay = kind, cache, r, opts.StatusDelay
	r.writes = &expectations.ConsistencyStore{
		Now: opts.Now, GiveUpAfter: opts.ExpectationsTimeout,
		ReadVersion: func(schema.GroupResource) string { return cache.OwnersVersion() },
	}
	return r
}

// resource returns the key under which writes of a kind are recorded.
func resource(kind schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}

func (r *reconciler[O, C]) metrics() []Sample { return r.measures.samples() }

func (r *reconciler[O, C]) newTerm(ctx context.Context, namespace string) {
	r.term.next()
	versioner, ok := r.client.(Versioner)
	if !ok {
		return
	}
	r.term.owners.askFirst(r.opts.Now, func() (string, error) { return versioner.ServerOwnersVersion(ctx, namespace) })
	r.term.children.askFirst(r.opts.Now, func() (string, error) { return versioner.ServerChildrenVersion(ctx, namespace) })
}

// childNoun is the word for a child in events, which is the kind in lower case, as in kubectl.
func (r *reconciler[O, C]) childNoun() string { return strings.ToLower(r.kind.Child.Kind) }

// all returns the options for n calls without slow start.
func (r *reconciler[O, C]) all(n int) slowstart.Options {
	return slowstart.Options{InitialBatchSize: n, MaxParallel: r.opts.MaxParallel}
}

// stateOf returns what is remembered of an owner for a pass at now, and forgets its
// old incarnations. A zero now means no pass.
func (r *reconciler[O, C]) stateOf(owner metav1.Object, now time.Time) *memory[C] {
	key := expectations.KeyOf(owner)
	state, idle := r.owners.of(key, owner.GetGeneration(), now)
	for _, uid := range idle {
		r.forget(expectations.Key{NamespacedName: key.NamespacedName, UID: uid})
	}
	r.owners.sweep(key.NamespacedName, now)
	return state
}

// forget drops all that is remembered of an owner that is gone. Calls in flight stay,
// because the owner may only have left the cache. An empty UID means every incarnation
// under that name, because the UID of an owner that is not found is unknown.
func (r *reconciler[O, C]) forget(key expectations.Key) {
	r.writes.Clear(key)
	r.owners.forget(key)
}

// childLeft notes for an owner that a child is being deleted, or left the cache.
func (r *reconciler[O, C]) childLeft(key expectations.Key, child types.UID) {
	if state := r.owners.get(key); state != nil {
		state.known.Left(child)
	}
}

// childTaken notes for an owner that another owner took over a child, which did not end by itself.
func (r *reconciler[O, C]) childTaken(key expectations.Key, child C) {
	if state := r.owners.get(key); state != nil {
		state.round.drop(child.GetCreationTimestamp().Time)
	}
}

// childEnded notes a DELETED event of a child, if that proves that the child is gone.
func (r *reconciler[O, C]) childEnded(child types.UID) {
	if r.opts.UnfilteredChildren {
		r.restores.deletedEvent(child)
	}
}

// cacheWentBack notes for an owner that a child went back to an older version in the cache.
func (r *reconciler[O, C]) cacheWentBack(key expectations.Key) {
	if state := r.owners.get(key); state != nil {
		state.known.WentBack()
	}
}

// becameReady notes that a child of an owner became ready.
func (r *reconciler[O, C]) becameReady(owner expectations.Key, child C) {
	if state := r.owners.get(owner); state != nil {
		state.ready.became(object.ID(child), r.opts.Now())
	}
}

// isOwnWrite reports whether an update of an owner shows only the status that was written
// last. It is false if that status needs another pass, or if a pass waits to see it.
func (r *reconciler[O, C]) isOwnWrite(was, cur O, wake func()) bool {
	state := r.owners.get(expectations.KeyOf(cur))
	return state != nil && state.wrote.explains(was, cur, wake)
}
