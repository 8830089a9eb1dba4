// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
)

// A Controller keeps the children of all owners of one kind on one API server. New
// makes it; a zero Controller returns errors. It must not be copied. All methods
// may be called by several goroutines at once, but Sync not twice at once for one
// owner: a work queue takes care of that.
type Controller struct {
	hidden
	reconciler syncer // nil if New did not make it
	handlers   Handlers
}

// hidden has inside.Ledgers, for this library's own tests.
type hidden = inside.Hidden

// A syncer is a reconciler of whatever owners and children.
type syncer interface {
	newTerm(ctx context.Context, namespace string)
	sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error)
	metrics() []Sample
}

// New returns a Controller for the owners of a kind. The event handlers ask for
// passes at enqueue, unless they are given another Enqueue. It is an error if
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

// Sync makes one pass for an owner: it adopts and releases, creates in slow start or
// deletes, and writes the status. If the cache does not show the status that the Controller
// wrote last, the pass only asks for another one. Nothing is created or deleted on a view
// that is known to be stale, and a lost response never creates an extra child. docs/pass.md
// in this repository says when a pass reads the server, what it puts off, and for how long.
//
// If err is nil and requeueAfter is positive, call Sync again after that time. If
// err is not nil and requeueAfter is positive, the server or a hold asks for this
// delay: use it instead of your rate limiter's. If the spec is refused, err is nil:
// an event tells it, Kind.Observe gets the error, and only a change of the owner
// helps against that. If a call panics, the panic reaches the caller of Sync after the
// calls of the same batch have ended. While a pass for an owner is under way, Sync for the same owner
// returns an error at once; for others it may be called from any number of goroutines.
//
// Differs from Kubernetes: of its own writes a pass waits for the status alone, and lays the
// others over the cache; a stale view is replaced by a live list, the owner is read before
// children are deleted, names are chosen before a child is created, failures are held back by
// their kind, and the status is patched and not put, so the cache may lack parts of the owner.
// Also, claims run in parallel, every error is reported, and the time at which the next child
// becomes available is computed from the children and not from the status that the server
// stored.
func (c *Controller) Sync(ctx context.Context, owner types.NamespacedName) (requeueAfter time.Duration, err error) {
	if c == nil || c.reconciler == nil {
		return 0, errors.New("controller: New did not make this Controller")
	}
	return c.reconciler.sync(ctx, owner)
}

// NewTerm tells the Controller that this process alone is at work from now on, and that another
// one may have been before. Call it when leadership, or a range of owners, was taken over. A
// Controller that has not made a pass yet needs no call.
//
// The caches may be older than what the other process saw. So before the first pass for an owner
// that creates or deletes there is one look at the server. NewTerm asks a Versioner how far the
// server has come. A cache that is filled after that is new enough, and no pass looks or waits.
// So call NewTerm before the informers are started, if the process is the only one by then. The
// namespace is that of the informers, or "" if they watch all.
func (c *Controller) NewTerm(ctx context.Context, namespace string) {
	if c != nil && c.reconciler != nil {
		c.reconciler.newTerm(ctx, namespace)
	}
}

// Metrics returns the Controller's metrics, in a fixed order: what its passes did
// since it was made, and how many owners are in which state since their last pass.
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
