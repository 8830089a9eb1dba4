// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
)

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

// Sync makes one pass for an owner. If the cache does not show the Controller's own
// earlier writes yet, the pass does nothing but ask for another one. Otherwise it
// asks the expectations, lists the children, adopts and releases, creates in slow
// start or deletes, and writes the status. Both questions come BEFORE the list: a
// child that arrives in between must not be created twice. As long as no event of any
// child came, the pass itself settles what its view shows of the expectations. An owner
// that the cache does not have is forgotten, except what was sent without an answer: that
// is remembered for five minutes, since the owner may have left the cache for a moment.
//
// If err is nil and requeueAfter is positive, call Sync again after that time. If
// err is not nil and requeueAfter is positive, the server or a hold asks for this
// delay: use it instead of your rate limiter's. If the spec is refused, err is nil:
// an event tells it, Kind.Observe gets the error, and only a change of the owner
// helps against that.
//
// # Old views
//
// Nothing is created or deleted on a view that is known to be old: if an
// expectation has expired, if another write of the Controller has not come back in
// Options.ExpectationsTimeout, which is five minutes by default, or if the server was
// restored to an older state. If there is something to create or delete
// then, the children are listed live; also if there is nothing, but the cache still
// lacks what an expired expectation waits for, so that the number is right by chance
// alone. If the list fails, nothing is changed. What a live list, or the answer to a
// call, has shown counts until the cache shows it too. If that takes more than five
// minutes, the children are listed again. A child that is older than the list and not in it is
// gone, even if the cache shows it later. If the cache does not tell how far it has
// come, passes follow every five seconds until it shows what the list has shown; they make
// no calls. If events of other children are newer than that, the children are listed again
// after five seconds, doubling to five minutes.
//
// A Controller has at most two live lists under way at once, for 30 seconds each at
// most, and owners with the same namespace and selector share one. If two more wait
// already, the pass ends and asks for another one after a second. After a list that
// failed there is none for a second, doubling to 15 seconds.
//
// # The owner
//
// Before a pass deletes children it reads the owner from the server, once, unless it
// has read it before an adoption. If that owner wants something else, is being deleted
// or is gone, nothing is deleted. What this and any other read or write shows of the
// owner is remembered. As long as the cache has an older one, passes do nothing: they
// look at the cache after 50 ms, doubling to a second, and then read the owner from the
// server, at least every ten seconds, and go by that. If such a pass fails, the next
// read waits twice as long, up to five minutes. An owner that is gone is looked
// for after five minutes at the latest. Generations tell whether an owner wants
// something else; if they are 0 or grow with each status write, what Kind.Spec returns
// does. If the owner cannot be read, nothing is deleted, an event tells why, and
// creations go on. Only the first creations of an owner in a process are preceded by a
// read: later one too many is deleted again.
//
// # New processes
//
// The caches of a new process, or of a new leader, may be older than what another
// process saw. So before the first pass for an owner that creates or deletes there is
// one look at the server. If the Client is a Versioner and the cache tells its version,
// that is one small list for all owners, and passes wait at most two seconds until the
// cache has come as far. Otherwise the children of the owner are listed live. The owner
// itself is read before its first children are created. An owner that was created at
// least five minutes after the first pass needs no look, even if clocks differ. NewTerm
// makes a process that goes on a new one.
//
// # Creations
//
// A child has its name before it is created: the owner's name and five random
// characters, as the API server makes it from generateName, which is set too. If a
// creation fails and the server did not refuse it, the Controller looks for the child
// on the server after the last call of the pass. If the child is there and is the
// owner's, it counts as created. If it is not there, the same name is sent again, in
// later passes too, so a request that takes effect late does not make one child too
// many. A name that another object has by then is not sent again.
//
// Each request that was sent under a name is settled by its answer, by a child of the
// owner that has the name, or by a look that finds nothing five minutes after the last
// request. Until then a name that is not sent again is looked for, also before other
// children are created. If that look fails, nothing is created. A refusal settles a
// request if it is a BadRequest, Forbidden, Invalid or AlreadyExists, or if the
// namespace is going, unless the client sent the request twice; see ErrResent.
//
// Creations of an owner in a namespace are held, while those in other namespaces,
// deletions and status go on:
//   - if the namespace is being deleted or is gone: for a minute, doubling to five.
//     This is no error.
//   - if a quota is full: for a second, doubling to a minute.
//   - if the server answers with Retry-After: for that time.
//   - if a webhook changed the labels or the owner reference of a new child, so
//     that it is not the owner's: for a second, doubling to five minutes. The child
//     is deleted again.
//   - if a creation had no answer, and the child is found with other labels: for
//     the same time. Its user may have changed the labels, so the child is released
//     and not deleted.
//
// A change of the owner's generation ends a hold. The first three also end if
// nothing is left to create, and the hold for a quota if a child of the owner is
// gone. After a success the next hold is a short one again.
//
// # Deletions
//
// A delete call carries the child's UID, and its resourceVersion too if the child
// was ready. After the first Conflict in a pass the children are listed live.
// Victims that still are active, match and belong to the owner are then deleted by
// their UID alone, as long as there are too many children, or if they must go.
//
// Deletions of an owner are held for 50 ms, doubling to a minute, if that list
// shows that victims were chosen from an old view, or if a child that has not
// changed cannot be deleted because of a Conflict, as some webhooks answer. A
// Retry-After of the server holds them for that time. When the hold reaches a
// second, one event DeletionsHeld says why.
//
// If the answer to a delete call is lost, the Controller looks for the child on the
// server. If the child is still there, it is the first to go in the next pass. Until
// it is gone, or has another resourceVersion than the call carried, it counts as gone
// for other deletions, for limits and for Kind.BeforeScale.
//
// # Claims
//
// If the server calls an adoption Invalid (422), the orphan is left alone for a
// minute, and a child is created in its place. Any other failure, such as a server
// that is busy, missing rights, or a policy, leaves the adoption undecided: no
// child is created in the orphan's place, and none is deleted because of it. One
// event tells why, and the adoption is tried again after 50 ms, doubling to a
// minute. If a BadRequest or Forbidden lasts for five minutes, the same patch is
// sent as a dry run for a child that the owner already has; if the server would
// take it there, the orphan is treated as if its adoption were Invalid. An orphan
// that is gone (404) is no failure. If the owner cannot be read before its first
// adoption, or may not adopt, the pass creates and deletes nothing. A release that
// fails is tried again, after a minute if the server calls it Invalid, and nothing
// waits for it.
//
// # Status
//
// If the spec has MinReadySeconds, a pass follows when the next ready child has been
// ready for so long. Since when a pod is ready, it tells by itself; of any other child
// it is when the Controller first saw it so.
//
// If Cache.ChildrenVersion tells how far the cache has come, the status counts what
// the pass created and deleted, and later passes count it too, until the cache
// shows it. So one write is enough, and no count goes back and forth. A created
// child counts by the labels and conditions in the server's answer. A deleted child
// counts as terminating, or not at all if neither a grace period nor a finalizer
// keeps it. If the version is not known, the status is that of the children as they
// were before. Until a Controller has seen that the cache has whole owners, it writes the
// status to the owner as it reads it; see OwnerCache.
//
// Expectations are recorded before the first call, and lowered for each call that
// failed or was not made. That holds for calls that panic too: a panic reaches the
// caller of Sync after the calls of the same batch have ended.
//
// Differs from Kubernetes: all of the above. Also, claims run in parallel, every
// error is reported, and the time at which the next child becomes available is
// computed from the children and not from the status that the server stored.
func (c *Controller) Sync(ctx context.Context, owner types.NamespacedName) (requeueAfter time.Duration, err error) {
	if c == nil || c.reconciler == nil {
		return 0, errors.New("controller: New did not make this Controller")
	}
	return c.reconciler.sync(ctx, owner)
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

// Expectations returns the record of what passes have started and no event has
// confirmed yet: for metrics and tests. Passes and events settle it by themselves.
// It is never nil.
func (c *Controller) Expectations() *expectations.Store[expectations.Key] {
	if c == nil || c.pending == nil {
		return &expectations.Store[expectations.Key]{}
	}
	return c.pending
}

// Metrics returns the Controller's metrics, in a fixed order: what its passes did
// since it was made, how many owners are in which state since their last pass, and
// how many wait for events. The time that it takes grows with the number of owners
// that wait. replicas/clientgo and replicas/controllerruntime give them to
// Prometheus.
func (c *Controller) Metrics() []Sample {
	if c == nil || c.reconciler == nil {
		return nil
	}
	return append(c.reconciler.metrics(), pendingSamples(c.pending)...)
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

// OwnerUpdated does what Handlers.OwnerUpdated does, with one exception: an update
// that shows only the status that the Controller itself wrote last wakes nobody,
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
