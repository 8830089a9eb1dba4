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

// A Controller maintains the desired number of children for every owner of one kind on one API server. Use New to make
// one, and do not copy it. A zero Controller does nothing: its Sync method and its event handlers return errors. The
// methods are safe for concurrent use, but two calls of Sync for the same owner must not overlap, which a work queue
// ensures.
type Controller struct {
	hidden
	reconciler syncer // nil in a zero Controller

	// Handlers handles the events of owners and children, as package handlers says, with one exception. An update of an
	// owner requests no pass if it shows only the Controller's own last status write. But it does if it arrives before
	// the answer to that write, if a pass waits for it, or if the new status changes the result of Kind.Spec so that
	// another pass is necessary; see the comment of Kind.Spec.
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

// New returns a Controller for the owners of a kind. Its event handlers request passes by calling enqueue, unless
// another Enqueue is passed to them. New returns an error if client, cache or enqueue is nil, if an option is negative,
// or if the Kind is invalid. It also returns the error of Check if client is a Checker. New calls Kind.Client once.
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

// Sync makes one pass for an owner. The pass adopts and releases children, changes, creates or deletes children, and
// writes the status. Creations use slow start. But while the cache does not show the last status that the Controller
// wrote, the pass does nothing except request another pass. The pass never creates or deletes children on the basis of
// a view that is known to be stale, and a lost answer never leads to an extra child, within the limits of
// docs/guarantee.md. The page docs/pass.md says when a pass reads from the server, and lists all delays.
//
// Call Sync again after requeueAfter if that is positive. With a nil err, 0 means that the next event brings the next
// pass. With an error, 0 leaves the delay to your rate limiter, and a positive requeueAfter takes its place, because
// the server or Kind.Prepare has requested this delay, or the Controller has computed it from the failures so far. For
// a refused spec err is nil, because only a change of the owner can help. An event reports the refusal, and
// Kind.Observe receives the error. If a method of the client panics, Sync panics too, after the other calls of the
// batch have ended. Any number of goroutines may call Sync for different owners, but while a pass for the owner is
// under way, Sync immediately returns an error.
//
// Differs from Kubernetes: a pass combines the cache with those writes of the Controller that the cache does not show
// yet, and of these writes, only a status write delays the whole pass. If the view is stale, the children are listed
// live. The owner is read from the server before children are deleted. The name of a child is chosen before the child
// is created. Each kind of failure has its own delay. The status is patched instead of replaced, so the cached owner
// may lack fields. Claims run in parallel, and every error is reported. The time at which the next child becomes
// available is computed from the children, not from the stored status.
func (c *Controller) Sync(ctx context.Context, owner types.NamespacedName) (requeueAfter time.Duration, err error) {
	if c == nil || c.reconciler == nil {
		return 0, errors.New("controller: New did not make this Controller")
	}
	return c.reconciler.sync(ctx, owner)
}

// NewTerm informs the Controller that only this process is active from now on, and that another process may have been
// active before. Call it after this process has become the leader, or has taken over a range of owners, but not
// necessarily before the Controller's first pass. The namespace is that of the informers, or "" if they watch all.
//
// The caches may be older than the state that an earlier active process saw. The Controller therefore reads from the
// server once for each owner, before it creates or deletes children of that owner. But if the client is a Versioner,
// NewTerm asks the server for its current resourceVersions, and if the caches report their versions and are filled
// after NewTerm returns, the Controller makes no live list of the children for each owner, and does not wait for the
// caches. It still reads an owner before the first creations, unless the owner was written after the call of NewTerm.
// So if this process is already the only active one at startup, call NewTerm before you start the informers.
func (c *Controller) NewTerm(ctx context.Context, namespace string) {
	if c != nil && c.reconciler != nil {
		c.reconciler.newTerm(ctx, namespace)
	}
}

// Options configures a Controller. The zero value of a field selects the default.
type Options struct {
	// Now returns the current time. The default is time.Now.
	Now func() time.Time
	// Random returns a number from 0 to n-1, for the names of children, and to spread the work for many owners over
	// time. It must be safe for concurrent use. The default is rand.IntN of math/rand/v2.
	Random func(n int) int
	// Events receives the events about owners. If Events is nil or a nil pointer, no events are sent.
	Events EventSink
	// MaxParallel is the maximum number of concurrent API calls for one owner. With 1, the goroutine that called Sync
	// makes the calls one after the other. The default is DefaultMaxParallel, and New rejects a negative value.
	MaxParallel int
	// ExpectationsTimeout is how long passes wait for the cache to show a creation or deletion, before they consider
	// the cache old. The Controller adds a random time of at most a tenth of it, so that many owners do not list
	// their children at the same moment. For an owner that the cache shows too late, passes wait only a second, and
	// then read it from the server. The default is expectations.DefaultTimeout, and New rejects a negative value.
	ExpectationsTimeout time.Duration
	// BackOffFailed delays creations if children end soon after they were created, for example because a node refuses
	// the pods. Children of a group that are created together form a round, and groups do not delay each other. For each
	// child of the last round that has ended, one creation is delayed, and any other missing children are created
	// without this delay. A child counts as ended if it becomes inactive, if the Rules require its deletion, or if
	// someone else deletes it, within ten minutes after its round was created. But one for which Rules.Discard returns
	// true must also have failed, and one that another owner has taken over does not count.
	//
	// The delay begins when the round is created. It is 10 seconds, and doubles up to 5 minutes while children of each
	// next round end, too. If only some children of a round have ended, the delay is reduced in proportion, but is at
	// least a second. A round in which no child ends makes the next delay 10 seconds again, and a new generation of the
	// owner ends the delay. If BackOffFailed is false, children are created without this delay, as in Kubernetes. The
	// default is true, except for pods.
	BackOffFailed *bool
	// StatusDelay delays the pass that follows an update of a child, if the update can change only the owner's status,
	// for example because the child has become ready. With one second, an owner has one status write per second, even
	// if a hundred of its children become ready per second. An update delays no pass if it changes the child's labels,
	// owner or deletionTimestamp, or the result of Rules.Active, Rules.MustGo, Rules.MustStay or Rules.Ended, or if
	// Spec.MaxDeletions is set. But a Kind.Prepare that waits until children are ready is delayed, too. If StatusDelay
	// is 0, no pass is delayed, as in Kubernetes. New rejects a negative value.
	StatusDelay time.Duration
	// UnfilteredChildren says that the cache watches the children without a label or field selector, so that a DELETED
	// event proves that a child is gone for good. If a live list that begins after the event still contains the child,
	// the server was restored from a backup. If it is false, DELETED events prove nothing, because a watch with a
	// selector also sends one for a child that no longer matches.
	UnfilteredChildren bool
	// OnRestored is called once, when the Controller has detected that the server was restored from a backup. The error
	// wraps ErrRestored and describes the proof. OnRestored must not block. If it is nil, the Run method of
	// replicas/clientgo and the manager of replicas/controllerruntime end with this error, and without these modules
	// Sync returns it.
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

// A reconciler implements a Controller, with the types of its owners and children. The list in memory.go says what ends
// the part of its state that changes.
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

// resource derives the GroupResource from a kind, for messages and gates.
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
	// A cache that is filled after these answers has all that an earlier process saw, so no pass lists or waits for it.
	r.term.owners.askFirst(r.opts.Now, func() (string, error) { return versioner.ServerOwnersVersion(ctx, namespace) })
	r.term.children.askFirst(r.opts.Now, func() (string, error) { return versioner.ServerChildrenVersion(ctx, namespace) })
}

// childNoun returns the kind of the children in lower case, for event messages.
func (r *reconciler[O, C]) childNoun() string { return strings.ToLower(r.kind.Child.Kind) }

// allAtOnce returns the slowstart.Options for n calls without slow start.
func (r *reconciler[O, C]) allAtOnce(n int) slowstart.Options {
	return slowstart.Options{InitialBatchSize: n, MaxParallel: r.opts.MaxParallel}
}

// stateOf returns what the Controller remembers about an owner between passes. Outside a pass, now is the zero time.
func (r *reconciler[O, C]) stateOf(owner metav1.Object, now time.Time) *memory[C] {
	key := expectations.KeyOf(owner)
	state, idle := r.owners.stateOf(key, owner.GetGeneration(), now)
	for _, uid := range idle {
		r.forget(expectations.Key{NamespacedName: key.NamespacedName, UID: uid})
	}
	r.owners.sweep(key.NamespacedName, now)
	return state
}

// forget drops the state of an owner that has left the cache, or of all owners of this name if the key has no UID.
func (r *reconciler[O, C]) forget(key expectations.Key) {
	// A filtered cache lost the owner, and the server still has it. So the state goes only when no call can still take
	// effect.
	r.owners.forget(key)
}

// childLeft is called when a child is being deleted, has another owner now, or has left the cache.
func (r *reconciler[O, C]) childLeft(key expectations.Key, child types.UID) {
	if state := r.owners.get(key); state != nil {
		state.ledger.ObserveLeaving(child)
	}
}

// childTaken is called when another owner has taken over a child.
func (r *reconciler[O, C]) childTaken(key expectations.Key, child C) {
	if state := r.owners.get(key); state != nil { // the child has not ended, so the next one need not wait
		state.rounds.drop(child)
	}
}

// childEnded is called after a DELETED event of a child.
func (r *reconciler[O, C]) childEnded(child types.UID) {
	if r.opts.UnfilteredChildren { // with a selector, the child may only have got other labels
		r.restores.ChildDeleted(child)
	}
}

// cacheRegressed is called when the cache has gone back to an older version of an owner's child.
func (r *reconciler[O, C]) cacheRegressed(key expectations.Key) {
	if state := r.owners.get(key); state != nil {
		state.ledger.CacheRegressed()
	}
}

// wasReady is called when a child became ready, or was ready before an update.
func (r *reconciler[O, C]) wasReady(owner expectations.Key, child C) {
	if state := r.owners.get(owner); state != nil {
		state.ready.setReady(object.ID(child), r.opts.Now())
	}
}

// isOwnWrite reports whether an update of an owner needs no pass, because it shows only what the Controller wrote last.
func (r *reconciler[O, C]) isOwnWrite(cur O) bool {
	state := r.owners.get(expectations.KeyOf(cur))
	return state != nil && state.wrote.explains(cur.GetResourceVersion())
}
