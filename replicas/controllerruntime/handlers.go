package controllerruntime

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas/controller"
)

// Handlers are event handlers for a loop of your own, which records in a Store what
// it creates and deletes. NewHandlers makes them; the zero Handlers ignore every
// event, and log so.
type Handlers struct {
	handlers *controller.Handlers
}

// NewHandlers returns Handlers that settle what store has recorded under
// expectations.KeyOf of an owner, and ask for its pass in the queue that they are
// given with each event. The owners are read by the client, so from the cache of its
// manager; its scheme must know their kind with its list. Whether they are in a
// namespace is what the client's RESTMapper says, and if it does not know them, as
// with fake clients, Kind.ClusterScoped. What of Kind is used, and the rules,
// are as for controller.NewHandlers.
//
//	handlers, err := controllerruntime.NewHandlers(mgr.GetClient(), kind, &store)
//	...
//	err = builder.ControllerManagedBy(mgr).For(&WorkerPool{}).
//		Watches(&Worker{}, handlers.ChildEvents()).Complete(loop)
//
// Watch the children with ChildEvents alone: builder.Owns settles nothing.
func NewHandlers[O, C client.Object](from client.Client, kind controller.Kind[O, C], store *expectations.Store[expectations.Key]) (*Handlers, error) {
	if from == nil {
		return nil, errors.New("controllerruntime: client is nil")
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
	nowhere := func(types.NamespacedName, time.Duration) {} // the queue comes with the event
	h, err := controller.NewHandlers(kind, view[O, C]{cache: from, kind: kind, owners: owners}, store, nowhere)
	if err != nil {
		return nil, err
	}
	return &Handlers{h}, nil
}

// ChildEvents handles the events of children, with builder.Watches say.
func (h *Handlers) ChildEvents() handler.EventHandler {
	return eventHandler(h.handlers.ChildAdded, h.handlers.ChildUpdated, h.handlers.ChildDeleted)
}

// OwnerEvents handles the events of owners. It may be left out if builder.For wakes
// them, and if the loop forgets by Store.ForgetName an owner that is not found.
func (h *Handlers) OwnerEvents() handler.EventHandler {
	return eventHandler(h.handlers.OwnerAdded, h.handlers.OwnerUpdated, h.handlers.OwnerDeleted)
}

// eventHandler gives the objects of events to the methods that settle them.
func eventHandler(
	added func(any, ...controller.Enqueue) error,
	updated func(any, any, ...controller.Enqueue) error,
	deleted func(any, ...controller.Enqueue) error,
) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			logIgnored(ctx, added(e.Object, into(q)))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			logIgnored(ctx, updated(e.ObjectOld, e.ObjectNew, into(q)))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
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

func into(q queue) controller.Enqueue {
	return func(owner types.NamespacedName, after time.Duration) {
		if after <= 0 {
			q.Add(reconcile.Request{NamespacedName: owner})
			return
		}
		q.AddAfter(reconcile.Request{NamespacedName: owner}, after)
	}
}
