package controllerruntime

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/replicas/controller"
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

// OwnerEvents handles the events of owners. Passes are asked for in the queue that
// it is given with each event.
func (r *Reconciler[O, C]) OwnerEvents() handler.TypedEventHandler[O, reconcile.Request] {
	return handlers[O](r.controller.OwnerAdded, r.controller.OwnerUpdated, r.controller.OwnerDeleted)
}

// ChildEvents handles the events of children, as OwnerEvents does those of owners.
// Use it for every controller that the Reconciler is put into, or for none.
func (r *Reconciler[O, C]) ChildEvents() handler.TypedEventHandler[C, reconcile.Request] {
	r.handled.Store(true)
	return handlers[C](r.controller.ChildAdded, r.controller.ChildUpdated, r.controller.ChildDeleted)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// handlers gives the objects of events to the methods that settle them.
func handlers[T client.Object](
	added func(any, ...controller.Enqueue) error,
	updated func(any, any, ...controller.Enqueue) error,
	deleted func(any, ...controller.Enqueue) error,
) handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q queue) {
			logIgnored(ctx, added(e.Object, into(q)))
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q queue) {
			logIgnored(ctx, updated(e.ObjectOld, e.ObjectNew, into(q)))
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q queue) {
			logIgnored(ctx, deleted(e.Object, into(q)))
		},
	}
}

func logIgnored(ctx context.Context, err error) {
	if err != nil {
		log.FromContext(ctx).Error(err, "Event ignored")
	}
}

func into(q queue) controller.Enqueue {
	return func(owner types.NamespacedName, after time.Duration) {
		if after <= 0 {
			q.Add(reconcile.Request{NamespacedName: owner})
			return
		}
		q.AddAfter(reconcile.Request{NamespacedName: owner}, after)
	}
}
