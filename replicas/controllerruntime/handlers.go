// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/follow"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/handlers"
)

// Handlers provides event handlers for your own reconcile loop, which must record its creations and deletions in an
// expectations.Store. Make Handlers with NewHandlers. The event handlers of nil or zero Handlers ignore every event and
// log an error.
type Handlers struct {
	handlers *handlers.Handlers
}

// NewHandlers returns event handlers that confirm creations and deletions in store, where each key must be the
// result of expectations.KeyOf for an owner. When an event requires a pass for an owner, the handlers add it to
// the queue that they receive with the event:
//
//	h, err := controllerruntime.NewHandlers(mgr.GetClient(), kind, &store)
//	...
//	err = builder.ControllerManagedBy(mgr).For(&WorkerPool{}).
//		Watches(&Worker{}, h.ChildEvents()).Complete(loop)
//
// Do not watch the children with builder.Owns, because its event handlers do not confirm anything in store.
//
// The handlers read owners with the client. Pass a manager's client, which reads from the manager's cache. The
// client's scheme must know the owners' kind and the kind of their list. The client's RESTMapper says whether the
// owners are namespaced, or Kind.ClusterScoped if the RESTMapper does not know the kinds, as with a fake client.
// Of the Kind, only Owner, ClusterScoped and Spec are used; see handlers.Config. For the effect of each event,
// see handlers.Handlers.
func NewHandlers[O, C client.Object](from client.Client, kind controller.Kind[O, C], store *expectations.Store[expectations.Key]) (*Handlers, error) {
	switch {
	case isNil(from):
		return nil, errors.New("controllerruntime: client is nil")
	case store == nil:
		return nil, errors.New("controllerruntime: store is nil")
	}
	owners := objects[O]{from.Scheme(), kind.Owner}
	if err := owners.check(); err != nil {
		return nil, err
	}
	scoped, err := checkScopes(from.RESTMapper(), kind)
	switch {
	case err == nil:
		kind.ClusterScoped = scoped
	case !meta.IsNoMatchError(err):
		return nil, err
	}
	h, err := handlers.New(handlers.Config[O, C]{
		Owner: kind.Owner, ClusterScoped: kind.ClusterScoped, Spec: kind.Spec,
		Owners: view[O, C]{cache: from, kind: kind, owners: owners}, Store: store,
		Enqueue: func(types.NamespacedName, time.Duration) {}, // each event comes with a queue
	})
	if err != nil {
		return nil, err
	}
	return &Handlers{h}, nil
}

// ChildEvents returns the event handler for children, for example for builder.Watches.
func (h *Handlers) ChildEvents() handler.EventHandler {
	made := h.made()
	return eventHandler(nil, made.ChildAdded, made.ChildUpdated, made.ChildDeleted)
}

// OwnerEvents returns the event handler for owners. It is not needed if you watch the owners with builder.For, and
// your loop calls Store.ForgetName when an owner is not found.
func (h *Handlers) OwnerEvents() handler.EventHandler {
	made := h.made()
	return eventHandler(nil, made.OwnerAdded, made.OwnerUpdated, made.OwnerDeleted)
}

// made returns what NewHandlers has set, or nil Handlers, whose methods return an error for each event.
func (h *Handlers) made() *handlers.Handlers {
	if h == nil {
		return nil
	}
	return h.handlers
}

// eventHandler returns an event handler that reports each event to watch, unless it is nil, and then calls one of
// the three functions with the objects of the event.
func eventHandler(
	watch *follow.Watch,
	added func(any, ...handlers.Enqueue) error,
	updated func(any, any, ...handlers.Enqueue) error,
	deleted func(any, ...handlers.Enqueue) error,
) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			watch.Saw(e.Object)
			logIgnored(ctx, added(e.Object, into(q)))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			watch.Updated(e.ObjectOld, e.ObjectNew)
			logIgnored(ctx, updated(e.ObjectOld, e.ObjectNew, into(q)))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if e.DeleteStateUnknown { // controller-runtime has unwrapped a tombstone, which proves less than a DELETED event
				watch.Saw(nil)
				logIgnored(ctx, deleted(cache.DeletedFinalStateUnknown{Obj: e.Object}, into(q)))
				return
			}
			watch.Saw(e.Object)
			logIgnored(ctx, deleted(e.Object, into(q)))
		},
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func logIgnored(ctx context.Context, err error) {
	if err != nil {
		log.FromContext(ctx).Error(err, "Event ignored")
	}
}

func into(q queue) handlers.Enqueue {
	if q == nil {
		return nil
	}
	return func(owner types.NamespacedName, after time.Duration) {
		if after <= 0 {
			q.Add(reconcile.Request{NamespacedName: owner})
			return
		}
		q.AddAfter(reconcile.Request{NamespacedName: owner}, after)
	}
}
