// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

	"github.com/replicakit/replicakit/internal/follow"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/transport"
)

// Options are the settings of a Reconciler. Each zero field means its default.
type Options struct {
	// Name is the name of the controller in metrics, logs and events. "" means the
	// kind of the owners in lower case, as in controller-runtime. In one process
	// every controller needs a name of its own.
	Name string
	// Cluster is where owners and children live. nil means the manager's own
	// cluster. Add another one to the manager, so that it is started.
	Cluster cluster.Cluster
	// Runtime are controller-runtime's own options, such as
	// MaxConcurrentReconciles, RateLimiter and NeedLeaderElection. Reconciler must
	// be nil. RateLimiter is not asked after an error with a delay of its own, such
	// as a server's Retry-After.
	Runtime runtimecontroller.Options
	// Controller are the options of the controller.Controller that makes the
	// passes, such as MaxParallel and ExpectationsTimeout. If Events is nil, events
	// go to the recorder of the Cluster.
	Controller controller.Options
	// Watches are those of the client that the Cluster's cache lists and watches with: wrap its
	// rest.Config before the Cluster is made. If a watch hangs, it is ended, and its objects are
	// listed anew. nil means that a watch that hangs is only reported: in the log, in the metric
	// replicakit_watch_age_seconds, and by CheckWatches. The same Watches serve all controllers of
	// a Cluster. docs/adopting.md in this repository says what is noticed when.
	Watches *transport.Watches
	// Healthz is the name under which Add adds CheckWatches to the manager's /healthz. "" means that it
	// does not.
	Healthz string
	// Build is called by Add with the builder of the controller, before the watches of
	// owners and children are added. Add further watches there:
	//
	//	Build: func(b *builder.Builder) error {
	//		b.Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(ownerOfClaim))
	//		return nil
	//	}
	//
	// Each request asks for a pass of the owner that it names. Objects are those of the
	// manager's own cache. The name and the options of the controller are those above,
	// and cannot be changed. If Build fails, Add returns its error. nil means no further
	// watches.
	Build func(b *builder.Builder) error
}

// Add adds a controller for a kind of owner to the manager. It starts with the
// manager, and works on all owners that the cache holds. The scheme must know the
// kinds of owners and children, and their lists. Let the manager elect a leader: two processes that
// both work create every child twice, as in each rolling update. If it elects none, one warning is
// logged when the controller starts. If the API server was restored from a backup,
// the manager's Start returns an error that wraps controller.ErrRestored, unless OnRestored of
// Options.Controller is set.
func Add[O, C client.Object](mgr manager.Manager, kind controller.Kind[O, C], opts Options) error {
	if isNil(mgr) {
		return errors.New("controllerruntime: manager is nil")
	}
	if opts.Runtime.Reconciler != nil {
		return fmt.Errorf("controllerruntime: kind %s: Options.Runtime has a Reconciler", kind.Owner.Kind)
	}
	if isNil(opts.Cluster) {
		opts.Cluster = mgr
	}
	r, err := New(opts.Cluster, kind, opts)
	if err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.view.checkCache)); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.awaitRestore)); err != nil {
		return err
	}
	if err := mgr.Add(following{opts.Cluster.GetCache(), r.FollowWatches}); err != nil {
		return err
	}
	if opts.Healthz != "" {
		if err := mgr.AddHealthzCheck(opts.Healthz, r.CheckWatches); err != nil {
			return fmt.Errorf("controllerruntime: kind %s: Options.Healthz: %w", kind.Owner.Kind, err)
		}
	}
	elects := opts.Runtime.NeedLeaderElection == nil || *opts.Runtime.NeedLeaderElection
	if err := mgr.Add(manager.RunnableFunc(func(context.Context) error {
		r.warnOfNoLeader(mgr.GetLogger(), elects)
		return nil
	})); err != nil {
		return err
	}
	opts.Runtime.RateLimiter = r.RateLimiter()
	if workers := &opts.Runtime.MaxConcurrentReconciles; *workers == 0 {
		*workers = mgr.GetControllerOptions().GroupKindConcurrency[kind.Owner.GroupKind().String()]
	}
	b := builder.ControllerManagedBy(mgr)
	if opts.Build != nil {
		if err := opts.Build(b); err != nil {
			return fmt.Errorf("controllerruntime: kind %s: Options.Build: %w", kind.Owner.Kind, err)
		}
	}
	cache := opts.Cluster.GetCache()
	owner, _ := r.view.owners.empty() // New has tried it
	child, _ := r.view.children.empty()
	return b.Named(r.name).WithOptions(opts.Runtime).
		WatchesRawSource(source.Kind[client.Object](cache, owner, r.OwnerEvents())).
		WatchesRawSource(source.Kind[client.Object](cache, child, r.ChildEvents())).
		Complete(r)
}

// A Reconciler makes one pass for an owner in each Reconcile. Add makes one and
// does the rest. Make one with New to put it into a controller of your own, for
// example one with more watches. Any other Reconciler returns an error, and ignores
// every event.
type Reconciler[O, C client.Object] struct {
	name       string
	controller *controller.Controller
	view       view[O, C]
	limiter    *limiter
	restored   chan error
	watches    follow.Watches
}

// New returns a Reconciler for the owners of a cluster; a manager is a cluster too.
// It adds the index of Index to the cluster's cache. Of the Options, Cluster and Build are
// ignored, and so is Runtime except its RateLimiter. Kind.ClusterScoped need not be
// set: the cluster's RESTMapper says whether owners are in a namespace.
//
// Watch the children with ChildEvents: their events settle what was started. If you
// do not, each pass settles it from the cache: a child that is
// there was created, and a child that is gone or being deleted was deleted. Then
// something else, such as builder.Owns, must ask for a pass when a child came or
// went; otherwise that pass comes only when the expectation expires. Orphans ask
// for no pass then: the owner adopts them in its next one.
func New[O, C client.Object](from cluster.Cluster, kind controller.Kind[O, C], opts Options) (*Reconciler[O, C], error) {
	if err := checkCluster(from); err != nil {
		return nil, fmt.Errorf("controllerruntime: kind %s: %w", kind.Owner.Kind, err)
	}
	r := &Reconciler[O, C]{name: opts.Name, limiter: newLimiter(opts.Runtime.RateLimiter), restored: make(chan error, 1)}
	if opts.Controller.OnRestored == nil {
		opts.Controller.OnRestored = func(err error) { r.restored <- err }
	}
	if r.name == "" {
		r.name = strings.ToLower(kind.Owner.Kind)
	}
	scheme := from.GetScheme()
	owners, children := objects[O]{scheme, kind.Owner}, objects[C]{scheme, kind.Child}
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
	if err := r.view.tellVersions(from.GetCache()); err != nil {
		return nil, err
	}
	kind.Observe = r.observe(kind.Observe)
	//nolint:staticcheck // controller-runtime 0.21, the lowest that is supported, has no other.
	if recorder := from.GetEventRecorderFor(r.name); isNil(opts.Controller.Events) && !isNil(recorder) {
		opts.Controller.Events = events{recorder}
	}
	calls := caller[O, C]{writer: from.GetClient(), live: from.GetAPIReader(), owners: owners, children: children}
	// Passes that nobody asked for in a queue are asked for by events alone.
	nowhere := func(types.NamespacedName, time.Duration) {}
	if r.controller, err = controller.New(kind, calls, r.view, nowhere, opts.Controller); err != nil {
		return nil, err
	}
	if r.watches, err = r.view.watches(from, calls, opts.Watches); err != nil {
		return nil, err
	}
	return r, registerMetrics(metrics.Registry, r.name, func() []controller.Sample {
		return append(r.controller.Metrics(), r.watches.Samples()...)
	})
}

// awaitRestore returns an error, which ends the manager, if the server was restored.
func (r *Reconciler[O, C]) awaitRestore(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.restored:
		return err
	}
}

// NewTerm tells the Reconciler that this process alone is at work from now on; see
// controller.Controller.NewTerm. A manager that loses its lease ends, so Add needs no call. A
// manager starts its caches before it elects, so only a program without an election can call
// NewTerm before that.
func (r *Reconciler[O, C]) NewTerm(ctx context.Context, namespace string) {
	r.made().NewTerm(ctx, namespace)
}

// observe looks at each pass, then tells the kind's own observer.
func (r *Reconciler[O, C]) observe(observe func(context.Context, controller.Pass[O, C])) func(context.Context, controller.Pass[O, C]) {
	return func(ctx context.Context, pass controller.Pass[O, C]) {
		for _, g := range pass.GateChanges {
			message, values := g.Log()
			log.FromContext(ctx).Info(message, values...)
		}
		if observe != nil {
			observe(ctx, pass)
		}
	}
}
