package controllerruntime

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconcile makes one pass for the owner of that name; see
// controller.Controller.Sync.
func (r *Reconciler[O, C]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.settle(ctx, req.NamespacedName); err != nil {
		return reconcile.Result{}, err
	}
	after, err := r.controller.Sync(ctx, req.NamespacedName)
	if err != nil {
		r.limiter.next(req, after)
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// RateLimiter returns a rate limiter for the controller that the Reconciler is put
// into: after an error that says when to come back it says the same, and else what
// that of the Options says.
func (r *Reconciler[O, C]) RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return r.limiter
}

// OwnerEvents handles the events of owners, with builder.Watches say. Passes are
// asked for in the queue that it is given with each event.
func (r *Reconciler[O, C]) OwnerEvents() handler.EventHandler {
	return eventHandler(r.controller.OwnerAdded, r.controller.OwnerUpdated, r.controller.OwnerDeleted)
}

// ChildEvents handles the events of children, as OwnerEvents does those of owners.
// Use it for every controller that the Reconciler is put into, or for none.
func (r *Reconciler[O, C]) ChildEvents() handler.EventHandler {
	r.handled.Store(true)
	return eventHandler(r.controller.ChildAdded, r.controller.ChildUpdated, r.controller.ChildDeleted)
}
