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
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/replicas/transport"
)

// Options configures a Reconciler. The zero value of a field selects its default.
type Options struct {
	// Name is the name of the controller in metrics, logs and events. The default is the owners' kind in
	// lower case, as in controller-runtime. Names must be unique within a process. Owners with two types of
	// children have two Kinds with the same default, so the second one must set Name.
	Name string
	// Cluster is the cluster that contains the owners and children. The default is the manager's own cluster.
	// Another one must be added to the manager, so that the manager starts it.
	Cluster cluster.Cluster
	// Runtime contains controller-runtime's own options, such as MaxConcurrentReconciles, RateLimiter and
	// NeedLeaderElection. Its field Reconciler must be nil. The delay in an error, such as a server's
	// Retry-After, takes the place of RateLimiter's.
	Runtime runtimecontroller.Options
	// Controller contains the options of the underlying controller.Controller, such as MaxParallel and
	// ExpectationsTimeout. By default, its Events go to the event recorder of the Cluster.
	Controller controller.Options
	// Watches records the watch requests of the Cluster's cache. Before you make the Cluster, wrap its
	// rest.Config with the Wrap method of Watches, and use the same Watches for all controllers of the Cluster.
	// The controller ends a watch that hangs, so that the cache lists its objects again. But if Watches is nil,
	// it can only report such a watch, in the log, in the metric replicakit_watch_age_seconds, and in the result
	// of CheckWatches. The page docs/adopting.md in this repository says which failures the controller notices,
	// and how soon.
	Watches *transport.Watches
	// Healthz is the name under which Add registers CheckWatches as a health check at the manager's /healthz
	// endpoint. By default, Add does not register it.
	Healthz string
	// Build can add further watches to the controller, and may be nil. Add calls it with the controller's
	// builder, before the watches of owners and children are added, and returns its error:
	//
	//	Build: func(b *builder.Builder) error {
	//		b.Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(ownerOfClaim))
	//		return nil
	//	}
	//
	// Each request from these watches causes a pass for the owner that the request names. The watches use the
	// manager's own cache, even if Cluster is set. Build cannot change the name and the options of the
	// controller, because they are set from the other fields of Options.
	Build func(b *builder.Builder) error
}

// Add makes a controller for one kind of owner, and adds it to the manager. The controller starts with the
// manager, and works on all owners in the cache. The cluster's scheme must know the kinds of owners and
// children, and the kinds of their lists. Add returns an error if another controller of the process has the
// same name; see Options.Name.
//
// Enable leader election in the manager. Without it, two processes are active at the same time during each
// rolling update of the operator, and create every child twice. The controller logs one warning when it starts
// if the manager elects no leader.
//
// When the API server was restored from a backup, the manager's Start returns an error that wraps
// controller.ErrRestored, unless Options.Controller.OnRestored is set.
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
	owner, _ := r.view.owners.empty() // this cannot fail after New
	child, _ := r.view.children.empty()
	return r.named(b.Named(r.name).WithOptions(opts.Runtime).
		WatchesRawSource(source.Kind[client.Object](cache, owner, r.OwnerEvents())).
		WatchesRawSource(source.Kind[client.Object](cache, child, r.ChildEvents())).
		Complete(r))
}

// named adds what to do to an error that says that another controller has the name.
func (r *Reconciler[O, C]) named(err error) error {
	if err == nil || !strings.Contains(err.Error(), "already exists") { // only the text says so
		return err
	}
	kind := r.view.kind
	return fmt.Errorf("controllerruntime: kind %s with children of kind %s: another controller has the name %q: set Options.Name: %w", kind.Owner.Kind, kind.Child.Kind, r.name, err)
}

// A Reconciler reconciles owners. Its method Reconcile makes one pass for an owner. Add makes a Reconciler and adds
// it to a manager, and New makes one for a controller that you build yourself. The zero Reconciler ignores every
// event, and its method Reconcile returns an error.
type Reconciler[O, C client.Object] struct {
	name       string
	controller *controller.Controller
	view       view[O, C]
	limiter    *limiter
	restored   chan error
	watches    follow.Watches
}

// New returns a Reconciler for the owners in a cluster, which may be a manager. It also adds an index to the
// cluster's cache; see Index. It ignores the options Cluster, Healthz and Build, and of Options.Runtime all but
// the RateLimiter. Kind.ClusterScoped need not be set, because New reads the scope of the owners from the
// cluster's RESTMapper.
//
// Watch the children with the event handler from ChildEvents, which confirms the creations and deletions of
// earlier passes as soon as their events arrive. Without it, each pass confirms them from the cache: a creation
// when the cache contains the child, and a deletion when it does not, or the child is being deleted. Then
// another watch, such as that of builder.Owns, must cause a pass whenever a child is created or deleted.
// Otherwise the next pass starts only when the expectation expires. A new orphan causes no pass then, so an
// owner adopts it only in its next one.
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
	passes := telemetry.New[O, C]()
	kind.Observe = observe(passes, kind.Observe)
	//nolint:staticcheck // controller-runtime 0.21, the lowest that is supported, has no other.
	if recorder := from.GetEventRecorderFor(r.name); isNil(opts.Controller.Events) && !isNil(recorder) {
		opts.Controller.Events = events{recorder}
	}
	calls := caller[O, C]{writer: from.GetClient(), live: from.GetAPIReader(), owners: owners, children: children}
	// The controller has no queue of its own, only those that the event handlers receive with each event.
	nowhere := func(types.NamespacedName, time.Duration) {}
	if r.controller, err = controller.New(kind, calls, r.view, nowhere, opts.Controller); err != nil {
		return nil, err
	}
	if r.watches, err = r.view.watches(from, calls, opts.Watches); err != nil {
		return nil, err
	}
	return r, r.named(registerMetrics(metrics.Registry, r.name, func() []telemetry.Sample {
		return append(passes.Samples(), telemetry.OfWatches(r.watches)...)
	}))
}

// awaitRestore waits until ctx ends, or returns the error of a restore, which stops the manager.
func (r *Reconciler[O, C]) awaitRestore(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.restored:
		return err
	}
}

// NewTerm informs the Reconciler that only this process is active from now on; see
// controller.Controller.NewTerm. With Add it is not needed, because a manager stops when it loses its lease. A
// manager starts its caches before leader election, so only a program without leader election can call NewTerm
// before the caches start.
func (r *Reconciler[O, C]) NewTerm(ctx context.Context, namespace string) {
	r.made().NewTerm(ctx, namespace)
}

// observe returns a function that records each pass, logs the changes of its gates, and then calls the Kind's Observe.
func observe[O, C client.Object](passes *telemetry.Recorder[O, C], observe func(context.Context, controller.Pass[O, C])) func(context.Context, controller.Pass[O, C]) {
	return func(ctx context.Context, pass controller.Pass[O, C]) {
		for _, g := range passes.Record(pass) {
			message, values := g.Log()
			log.FromContext(ctx).Info(message, values...)
		}
		if observe != nil {
			observe(ctx, pass)
		}
	}
}
