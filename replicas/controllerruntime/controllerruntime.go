package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// Options are settings of a controller. Each zero field means its default.
type Options struct {
	// Name is the controller's, in metrics, logs and events. "" means the kind of
	// the owners in lower case, as controller-runtime has it. Of two controllers in
	// one process each needs a name of its own.
	Name string
	// Cluster is where owners and children live, if that is not the manager's own
	// cluster. Add it to the manager, so that it is started.
	Cluster cluster.Cluster
	// Runtime are controller-runtime's own options: MaxConcurrentReconciles,
	// RateLimiter, NeedLeaderElection and the like. Reconciler must be nil. After
	// an error that says when to come back, as a server's Retry-After does, the
	// RateLimiter is not asked.
	Runtime runtimecontroller.Options
	// Controller are the options of the Controller that makes the passes: MaxParallel,
	// ExpectationsTimeout and the like. Without Events, events go to the recorder
	// of the Cluster.
	Controller controller.Options
}

// Add wires a controller for a kind of owner into the manager: it starts with the
// manager, and serves all owners that the cache holds. The scheme must know the
// kinds of owners and children with their lists.
func Add[O, C client.Object](mgr manager.Manager, kind controller.Kind[O, C], opts Options) error {
	if mgr == nil {
		return errors.New("controllerruntime: manager is nil")
	}
	if opts.Runtime.Reconciler != nil {
		return fmt.Errorf("controllerruntime: kind %s: Options.Runtime has a Reconciler", kind.Owner.Kind)
	}
	if opts.Cluster == nil {
		opts.Cluster = mgr
	}
	r, err := New(opts.Cluster, kind, opts)
	if err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.view.checkCache)); err != nil {
		return err
	}
	opts.Runtime.RateLimiter = r.RateLimiter()
	if workers := &opts.Runtime.MaxConcurrentReconciles; *workers == 0 {
		*workers = mgr.GetControllerOptions().GroupKindConcurrency[kind.Owner.GroupKind().String()]
	}
	cache := opts.Cluster.GetCache()
	owner, _ := r.view.owners.empty() // New has tried it
	child, _ := r.view.children.empty()
	return builder.ControllerManagedBy(mgr).Named(r.name).WithOptions(opts.Runtime).
		WatchesRawSource(source.Kind[client.Object](cache, owner, r.OwnerEvents())).
		WatchesRawSource(source.Kind[client.Object](cache, child, r.ChildEvents())).
		Complete(r)
}

// A Reconciler makes a pass for an owner with each call of Reconcile. Add has done
// all that is to be done with one; make it with New to put it into a controller of
// your own, with more watches, say.
type Reconciler[O, C client.Object] struct {
	name       string
	controller *controller.Controller
	view       view[O, C]
	limiter    *limiter
	handled    atomic.Bool // ChildEvents has been called
	unseen     sync.Map    // by namespace and name of the owner; see unseenOf
}

// New returns a Reconciler for the owners of a cluster; a manager is one too.
//
// If ChildEvents handles the children, their events settle what was started.
// Without it, each pass settles that from the cache, before it begins: a child that
// is there has been created, and one that is gone or going has been deleted. Then
// something has to bring about a pass after a child came or went, such as
// builder.Owns, or it comes when the expectation expires. Orphans wake nobody
// then: they are adopted in the next pass for another reason.
//
// Whether owners are in a namespace is what the cluster's RESTMapper says;
// Kind.ClusterScoped need not be set.
//
// Of the Options, Cluster is not looked at, and of Runtime only the RateLimiter.
func New[O, C client.Object](from cluster.Cluster, kind controller.Kind[O, C], opts Options) (*Reconciler[O, C], error) {
	if from == nil {
		return nil, errors.New("controllerruntime: cluster is nil")
	}
	r := &Reconciler[O, C]{name: opts.Name, limiter: newLimiter(opts.Runtime.RateLimiter)}
	if r.name == "" {
		r.name = strings.ToLower(kind.Owner.Kind)
	}
	scheme := from.GetScheme()
	owners, children := objects[O]{scheme, kind.Owner}, objects[C]{scheme, kind.Child}
	live := from.GetAPIReader()
	if live == nil {
		return nil, fmt.Errorf("controllerruntime: kind %s: the cluster has no uncached reader: GetAPIReader returned nil", kind.Owner.Kind)
	}
	if err := errors.Join(owners.check(), children.check()); err != nil {
		return nil, err
	}
	var err error
	if kind.ClusterScoped, err = checkScopes(from.GetRESTMapper(), kind); err != nil {
		return nil, err
	}
	r.view = view[O, C]{cache: from.GetCache(), kind: kind, owners: owners, children: children}
	if err := r.view.addIndex(from.GetFieldIndexer()); err != nil {
		return nil, err
	}
	kind.Observe = r.observe(kind.Observe)
	if opts.Controller.Events == nil {
		opts.Controller.Events = events{from.GetEventRecorderFor(r.name)}
	}
	calls := caller[O, C]{writer: from.GetClient(), live: live, owners: owners, children: children}
	// Passes that nobody asked for in a queue are asked for by events alone.
	nowhere := func(types.NamespacedName, time.Duration) {}
	if r.controller, err = controller.New(kind, calls, r.view, nowhere, opts.Controller); err != nil {
		return nil, err
	}
	return r, registerMetrics(metrics.Registry, r.name, r.controller)
}

// observe looks at each pass, then tells the kind's own observer.
func (r *Reconciler[O, C]) observe(observe func(context.Context, controller.Pass[O, C])) func(context.Context, controller.Pass[O, C]) {
	return func(ctx context.Context, pass controller.Pass[O, C]) {
		logRefused(ctx, pass.Err)
		r.noteUnseen(ctx, pass)
		if observe != nil {
			observe(ctx, pass)
		}
	}
}

// logRefused logs what no other pass will mend: it is no error of the pass.
func logRefused(ctx context.Context, err error) {
	if isRefused(err) {
		log.FromContext(ctx).Info("Spec refused", "reason", err.Error())
	}
}

func isRefused(err error) bool {
	var refused *replicas.RefusedError
	return errors.As(err, &refused)
}
