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
	"github.com/replicakit/replicakit/replicas/handlers"
	"github.com/replicakit/replicakit/replicas/internal/restores"
	"github.com/replicakit/replicakit/slowstart"
)

// A Controller maintains the desired number of children for every owner of one kind on one API server. Use
// New to make a Controller. A zero Controller does nothing. Its Sync method and its event handlers return
// errors. Do not copy a Controller. Its methods are safe for concurrent use, except that two calls of Sync
// for the same owner must not overlap. A work queue ensures that calls of Sync for the same owner do not
// overlap.
type Controller struct {
	hidden
	reconciler syncer // nil in a zero Controller

	// Handlers handles the events of owners and children. It has one exception to what package handlers says: an update
	// of an owner requests no pass if it shows only the Controller's own last status write, unless it arrives before the
	// answer to that write, a pass waits for it, or the new status changes the result of Kind.Spec so that another pass
	// is necessary; see the comment of Kind.Spec.
	//
	// Differs from Kubernetes: in Kubernetes, each status write leads to another pass.
	*handlers.Handlers
}

// hidden gives this library's own tests access to the ledgers through inside.Ledgers.
type hidden = inside.Hidden

// A syncer hides the type parameters of a reconciler.
type syncer interface {
	newTerm(ctx context.Context, namespace string)
	sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error)
}

// New returns a Controller for the owners of a kind. To request a pass, the Controller's event handlers
// call enqueue. If another Enqueue is passed to a handler, the handler calls that one instead. New returns
// an error if client, cache or enqueue is nil, if an option is negative, or if the Kind is invalid. If
// client is a Checker and Check returns an error, New returns that error. New calls Kind.Client once.
func New[O, C Object](kind Kind[O, C], client Client[O, C], cache Cache[O, C], enqueue handlers.Enqueue, opts Options) (*Controller, error) {
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
	calls := client
	if kind.Client != nil {
		if calls = kind.Client(client); object.IsNil(calls) {
			return nil, fmt.Errorf("controller: kind %s: Client returned nil", kind.Owner.Kind)
		}
	}
	r := newReconciler(kind, cache, opts.withDefaults())
	r.client = restores.Guard(r.restores, calls, client, cache)
	var err error
	r.events, err = handlers.New(handlers.Config[O, C]{
		Owner: kind.Owner, ClusterScoped: kind.ClusterScoped, Spec: kind.Spec,
		Owners: cache, StatusDelay: opts.StatusDelay, Enqueue: enqueue,
		Listener: handlers.Listener[O, C]{
			ChildLeft: r.childLeft, ChildTaken: r.childTaken, ChildEnded: r.childEnded, WasReady: r.wasReady,
			CacheRegressed: r.cacheRegressed, OwnerLeft: r.forget, IsOwnWrite: r.isOwnWrite,
		},
	})
	return &Controller{hidden: inside.Hide(&r.owners), reconciler: r, Handlers: r.events}, err
}

// Sync makes one pass for an owner. The pass adopts and releases children, creates or deletes children, and
// writes the status. Creations use slow start. If the cache does not show the last status that the
// Controller wrote, the pass does nothing except request another pass. The pass never creates or deletes
// children on the basis of a view that is known to be stale. A lost response never leads to an extra child.
// The page docs/pass.md in this repository says when a pass reads from the server, and lists all delays.
//
// If err is nil and requeueAfter is positive, call Sync again after that time. If err is not nil and
// requeueAfter is positive, use requeueAfter instead of the delay of your rate limiter. The server or
// Kind.Prepare has requested this delay, or the Controller has computed it from the failures so far. If the
// spec is refused, err is nil, because only a change of the owner can help. An event reports the refusal,
// and Kind.Observe receives the error. If a method of the client panics, Sync panics too, after the other
// calls of the batch have ended. If a pass for the owner is already under way, Sync immediately returns an
// error. Any number of goroutines may call Sync for different owners.
//
// Differs from Kubernetes: a pass combines the cache with those writes of the Controller that the cache
// does not show yet. Of these writes, only a status write delays the whole pass. If the view is stale, the
// children are listed live. The owner is read from the server before children are deleted. The name of a
// child is chosen before the child is created. Each kind of failure has its own delay. The status is
// patched instead of replaced, so the cached owner may lack fields. Claims run in parallel, and every error is
// reported. The time at which the next child becomes available is computed from the
// children, not from the stored status.
func (c *Controller) Sync(ctx context.Context, owner types.NamespacedName) (requeueAfter time.Duration, err error) {
	if c == nil || c.reconciler == nil {
		return 0, errors.New("controller: New did not make this Controller")
	}
	return c.reconciler.sync(ctx, owner)
}

// NewTerm informs the Controller that only this process is active from now on, and that another process may
// have been active before. Call NewTerm after this process has become the leader, or has taken over a range
// of owners. You do not have to call NewTerm before the Controller's first pass.
//
// The caches may be older than the state that an earlier active process saw. The Controller therefore reads
// from the server once for each owner, before it creates or deletes children of that owner. If the client
// is a Versioner, NewTerm asks the server for its current resourceVersions. If the caches report their
// versions and are filled after NewTerm returns, the Controller makes no live list of the children for each
// owner, and does not wait for the caches. It still reads an owner before the first creations, unless the
// owner was written after the call of NewTerm. If this process is already the only active one at startup,
// call NewTerm before you start the informers. The argument namespace is the namespace of the informers, or
// "" if they watch all namespaces.
func (c *Controller) NewTerm(ctx context.Context, namespace string) {
	if c != nil && c.reconciler != nil {
		c.reconciler.newTerm(ctx, namespace)
	}
}

// Options configures a Controller. The zero value of a field selects the default.
type Options struct {
	// Now returns the current time. The default is time.Now.
	Now func() time.Time
	// Random returns a number from 0 to n-1. The Controller uses Random to generate names of children, and
	// to spread the work for many owners over time. Several goroutines may call Random at the same time.
	// The default is rand.IntN of math/rand/v2.
	Random func(n int) int
	// Events receives the events about owners. If Events is nil or a nil pointer, no events are sent.
	Events EventSink
	// MaxParallel is the maximum number of concurrent API calls for one owner. The default is
	// DefaultMaxParallel, and New rejects a negative value. If MaxParallel is 1, the goroutine that called
	// Sync makes the calls one after the other.
	MaxParallel int
	// ExpectationsTimeout is how long passes wait for the cache to show a creation or deletion. After this
	// time, the cache is considered old. The Controller adds a random time of at most a tenth of
	// ExpectationsTimeout. Without this random time, the passes of many owners might list their children at
	// the same moment. For an owner that the cache shows too late, passes wait a second, and then read it from
	// the server. The default is expectations.DefaultTimeout, and New rejects a negative value.
	ExpectationsTimeout time.Duration
	// BackOffFailed delays creations if children end soon after they were created, for example because a
	// node refuses the pods. Children that are created together form a round. If n children of the last
	// round have ended, n creations are delayed. Any other missing children are created without this delay.
	// A child counts as ended if it becomes inactive, if the Rules require its deletion, or if someone else
	// deletes it, within ten minutes after its round was created. A child for which Rules.Discard returns
	// true counts as ended only if it has failed. A child that another owner has taken over does not count.
	//
	// The delay begins when the round is created. If children of one round end, the delay is 10 seconds. If
	// children of the next round also end, the delay doubles, up to 5 minutes. If only some children of the
	// round have ended, the delay is reduced in proportion, but is at least a second. After a round in which
	// no child ends, the next delay is 10 seconds again. A new generation of the owner ends the delay. If
	// BackOffFailed is false, children are created without this delay, as in Kubernetes. The default is
	// true, except for pods.
	BackOffFailed *bool
	// StatusDelay delays the pass that follows an update of a child, if the update can change only the
	// owner's status. For example, the child may have become ready. If StatusDelay is one second, an owner
	// has one status write per second, even if a hundred of its children become ready per second. If an
	// update changes the child's labels, owner or deletionTimestamp, the pass is not delayed. If an update
	// changes the result of Rules.Active, Rules.MustGo, Rules.MustStay or Rules.Ended, the pass is not
	// delayed either. If Spec.MaxDeletions is set, no pass is delayed. If Kind.Prepare waits until children
	// are ready, StatusDelay also delays Kind.Prepare. If StatusDelay is 0, no pass is delayed, as in
	// Kubernetes. New rejects a negative value.
	StatusDelay time.Duration
	// UnfilteredChildren says that the cache watches the children without a label or field selector. A
	// DELETED event of a watch without a selector proves that a child is gone for good. If a live list that
	// begins after the DELETED event of a child still contains the child, the server was restored from a
	// backup. A watch with a selector also sends a DELETED event for a child that no longer matches the
	// selector. If UnfilteredChildren is false, DELETED events therefore prove nothing.
	UnfilteredChildren bool
	// OnRestored is called once, when the Controller has detected that the server was restored from a backup.
	// The error wraps ErrRestored and describes the proof. OnRestored must not block. If OnRestored is nil,
	// the Run method of replicas/clientgo and the manager of replicas/controllerruntime end with this error.
	// If neither replicas/clientgo nor replicas/controllerruntime is used, Sync returns the error.
	OnRestored func(error)
}

// DefaultMaxParallel is the default of Options.MaxParallel.
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

// A reconciler implements a Controller, with the types of its owners and children as type parameters.
type reconciler[O, C Object] struct {
	kind   Kind[O, C]
	events *handlers.Handlers
	client Client[O, C]
	cache  Cache[O, C]
	opts   Options
	lists  chan struct{} // has an element for each live list that is under way
	owners owners[C]
	term   term
	// restores is shared with the guard that wraps the client.
	restores *restores.Watch
	// restoredEventSent is true after the event about a restore was sent.
	restoredEventSent atomic.Bool

	ownerResource, childResource schema.GroupResource
	patchType                    types.PatchType
	// statusCounts is true if a status write increases the owner's generation.
	statusCounts atomic.Bool
	backOff      bool                       // Options.BackOffFailed, with its default
	names        func(prefix string) string // the names of new children
}

func newReconciler[O, C Object](kind Kind[O, C], cache Cache[O, C], opts Options) *reconciler[O, C] {
	r := &reconciler[O, C]{
		kind: kind, cache: cache, opts: opts, restores: &restores.Watch{On: opts.OnRestored},
		lists: make(chan struct{}, listsAtOnce),
		owners: owners[C]{patience: func() time.Duration { // partly random, to spread the lists over time
			return opts.ExpectationsTimeout + time.Duration(opts.Random(int(opts.ExpectationsTimeout/10/time.Millisecond)+1))*time.Millisecond
		}},
		ownerResource: resource(kind.Owner), childResource: resource(kind.Child),
		patchType: patchTypeFor(kind.PatchType, kind.Child),
		backOff:   kind.Child.GroupKind() != schema.GroupKind{Kind: "Pod"},
		names:     func(prefix string) string { return prefix + suffix(opts.Random) },
	}
	if opts.BackOffFailed != nil {
		r.backOff = *opts.BackOffFailed
	}
	return r
}

// resource derives the GroupResource from a kind. The Controller uses the GroupResource in messages and in
// the records of status writes.
func resource(kind schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}

func (r *reconciler[O, C]) newTerm(ctx context.Context, namespace string) {
	r.term.next()
	versioner, ok := r.client.(Versioner)
	if !ok {
		return
	}
	r.term.owners.askFirst(r.opts.Now, func() (string, error) { return versioner.ServerOwnersVersion(ctx, namespace) })
	r.term.children.askFirst(r.opts.Now, func() (string, error) { return versioner.ServerChildrenVersion(ctx, namespace) })
}

// childNoun returns the kind of the children in lower case, for event messages.
func (r *reconciler[O, C]) childNoun() string { return strings.ToLower(r.kind.Child.Kind) }

// allAtOnce returns the slowstart.Options for n calls without slow start.
func (r *reconciler[O, C]) allAtOnce(n int) slowstart.Options {
	return slowstart.Options{InitialBatchSize: n, MaxParallel: r.opts.MaxParallel}
}

// stateOf returns what the Controller remembers about an owner between passes. During a pass, the argument
// now is the time of this pass. If stateOf is called outside a pass, now is the zero time. If other owners
// with the same name had their last pass long ago, stateOf also forgets them.
func (r *reconciler[O, C]) stateOf(owner metav1.Object, now time.Time) *memory[C] {
	key := expectations.KeyOf(owner)
	state, idle := r.owners.stateOf(key, owner.GetGeneration(), now)
	for _, uid := range idle {
		r.forget(expectations.Key{NamespacedName: key.NamespacedName, UID: uid})
	}
	r.owners.sweep(key.NamespacedName, now)
	return state
}

// forget drops the state of an owner that has left the cache. It keeps the record of calls in flight,
// because the owner may still exist on the server. If the UID in the key is empty, forget applies to every
// owner with this name.
func (r *reconciler[O, C]) forget(key expectations.Key) {
	r.owners.forget(key)
}

// childLeft is called when a child is being deleted, has another owner now, or has left the cache. It
// records this in the state of the owner.
func (r *reconciler[O, C]) childLeft(key expectations.Key, child types.UID) {
	if state := r.owners.get(key); state != nil {
		state.ledger.ObserveLeaving(child)
	}
}

// childTaken is called when another owner has taken over a child. It removes the child from the former
// owner's last round, so that the child does not count as ended there.
func (r *reconciler[O, C]) childTaken(key expectations.Key, child C) {
	if state := r.owners.get(key); state != nil {
		state.rounds.drop(child)
	}
}

// childEnded is called after a DELETED event of a child. If Options.UnfilteredChildren is set, childEnded
// records the event.
func (r *reconciler[O, C]) childEnded(child types.UID) {
	if r.opts.UnfilteredChildren {
		r.restores.ChildDeleted(child)
	}
}

// cacheRegressed records in the state of an owner that the cache has gone back to an older version of a
// child.
func (r *reconciler[O, C]) cacheRegressed(key expectations.Key) {
	if state := r.owners.get(key); state != nil {
		state.ledger.CacheRegressed()
	}
}

// wasReady records the time at which a child of an owner became ready, or was last seen ready.
func (r *reconciler[O, C]) wasReady(owner expectations.Key, child C) {
	if state := r.owners.get(owner); state != nil {
		state.ready.setReady(object.ID(child), r.opts.Now())
	}
}

// isOwnWrite reports whether an update of an owner shows only the status that the Controller wrote last. If
// this status needs another pass, or if a pass waits for the update, the result is false.
func (r *reconciler[O, C]) isOwnWrite(cur O) bool {
	state := r.owners.get(expectations.KeyOf(cur))
	return state != nil && state.wrote.explains(cur.GetResourceVersion())
}
