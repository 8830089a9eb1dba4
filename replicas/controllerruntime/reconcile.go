// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"errors"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/internal/follow"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/handlers"
	"github.com/replicakit/replicakit/replicas/transport"
)

// Reconcile makes one pass for the owner that the request names; see controller.Controller.Sync.
func (r *Reconciler[O, C]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if r.made() == nil {
		return reconcile.Result{}, errors.New("controllerruntime: New did not make this Reconciler")
	}
	after, err := r.controller.Sync(transport.WithOwner(ctx, req.NamespacedName), req.NamespacedName)
	if errors.Is(err, controller.ErrRestored) { // every further pass would return the same error
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	if err != nil {
		r.limiter.next(req, after)
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// RateLimiter returns the rate limiter for a controller that you build with the Reconciler. Its delays are those of
// the RateLimiter in Options.Runtime, except that an error's own delay, such as a server's Retry-After, counts.
func (r *Reconciler[O, C]) RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	if r.made() == nil {
		return newLimiter(nil)
	}
	return r.limiter
}

// OwnerEvents returns the event handler for owners, for example for builder.Watches. It adds the owner of each event
// to the queue that it receives with the event.
func (r *Reconciler[O, C]) OwnerEvents() handler.EventHandler {
	made := r.events()
	return eventHandler(r.followed().Owners, made.OwnerAdded, made.OwnerUpdated, made.OwnerDeleted)
}

// ChildEvents returns the event handler for children, as OwnerEvents does for owners. If several
// controllers use one Reconciler, either all of them or none of them must use ChildEvents.
func (r *Reconciler[O, C]) ChildEvents() handler.EventHandler {
	made := r.events()
	return eventHandler(r.followed().Children, made.ChildAdded, made.ChildUpdated, made.ChildDeleted)
}

// followed returns the Reconciler's watches, which are empty if New did not make it.
func (r *Reconciler[O, C]) followed() follow.Watches {
	if r == nil {
		return follow.Watches{}
	}
	return r.watches
}

// made returns the Reconciler's controller, or nil if New did not make it.
func (r *Reconciler[O, C]) made() *controller.Controller {
	if r == nil {
		return nil
	}
	return r.controller
}

// events returns the controller's handlers, or nil ones, whose methods return an error.
func (r *Reconciler[O, C]) events() *handlers.Handlers {
	if made := r.made(); made != nil {
		return made.Handlers
	}
	return nil
}
