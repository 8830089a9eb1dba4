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

// Options are the settings of a Reconciler. A zero field means the field's default.
type Options struct {
	// Name is the name of the controller in metrics, logs and events. "" means the owners' kind in lower
	// case, as in controller-runtime. In one process, every controller needs its own name.
	Name string
	// Cluster is the cluster in which owners and children live. nil means the manager's own cluster. If
	// you set another Cluster, add that Cluster to the manager, so that the manager starts it.
	Cluster cluster.Cluster
	// Runtime are controller-runtime's own options, such as MaxConcurrentReconciles, RateLimiter and
	// NeedLeaderElection. Reconciler must be nil. RateLimiter is not used after an error that contains a
	// delay, such as a server's Retry-After.
	Runtime runtimecontroller.Options
	// Controller are the options of the controller.Controller that makes the passes, such as MaxParallel
	// and ExpectationsTimeout. If Events is nil, events go to the event recorder of the Cluster.
	Controller controller.Options
	// Watches records the watches of the client that fills the Cluster's cache. Wrap that client's
	// rest.Config before you make the Cluster. If a watch hangs, the controller ends the watch, and the
	// cache lists its objects again. If Watches is nil, a watch that hangs is only reported in the log, in
	// the metric replicakit_watch_age_seconds, and by CheckWatches. All controllers of a Cluster share one
	// Watches. docs/adopting.md in this repository says which failures the controller notices, and how
	// soon.
	Watches *transport.Watches
	// Healthz is the name under which Add adds CheckWatches to the manager's /healthz. If Healthz is "",
	// Add does not add CheckWatches.
	Healthz string
	// Build is called by Add with the controller's builder, before Add adds the watches of owners and
	// children. In Build, you can add further watches:
	//
	//	Build: func(b *builder.Builder) error {
	//		b.Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(ownerOfClaim))
	//		return nil
	//	}
	//
	// Each request from these watches asks for a pass for the owner that the request names. The watches
	// read the manager's own cache, even if Cluster is set. Build cannot change the controller's name and
	// options, which the other fields of Options determine. If Build returns an error, Add returns that
	// error. nil means no further watches.
	Build func(b *builder.Builder) error
}

// Add adds a controller for a kind of owner to the manager. The controller starts with the manager, and
// works on all owners in the cache. The cluster's scheme must know the kinds of owners and children, and
// the kinds of their lists. Let the manager elect a leader. Otherwise two processes work at the same time
// during each rolling update, and create every child twice. If the manager elects no leader, the
// controller logs one warning when it starts. If the API server was restored from a backup, the manager's
// Start returns an error that wraps controller.ErrRestored, unless OnRestored of Options.Controller is
// set.
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
	return b.Named(r.name).WithOptions(opts.Runtime).
		WatchesRawSource(source.Kind[client.Object](cache, owner, r.OwnerEvents())).
		WatchesRawSource(source.Kind[client.Object](cache, child, r.ChildEvents())).
		Complete(r)
}

// A Reconciler makes one pass for an owner in each call of Reconcile. Add makes a Reconciler and adds it
// to a manager. If you build the controller yourself, for example to add more watches, make the Reconciler
// with New. The Reconcile of a zero Reconciler returns an error, and a zero Reconciler ignores every
// event.
type Reconciler[O, C client.Object] struct {
	name       string
	controller *controller.Controller
	view       view[O, C]
	limiter    *limiter
	restored   chan error
	watches    follow.Watches
}

// New returns a Reconciler for the owners in a cluster. A manager can also be passed as the cluster. New
// adds the index that Index returns to the cluster's cache. Of the Options, New ignores Cluster, Healthz
// and Build. Of Options.Runtime, New uses only RateLimiter. You need not set Kind.ClusterScoped, because
// New finds out from the cluster's RESTMapper whether owners are in a namespace.
//
// Watch the children with ChildEvents, because their events confirm the creations and deletions that
// passes have started. Without ChildEvents, each pass confirms these creations and deletions from the
// cache. A creation is confirmed if the child is in the cache. A deletion is confirmed if the child is
// gone from the cache, or is being deleted. Another watch, such as that of builder.Owns, must then ask for
// a pass when a child is created or deleted. If there is no such watch, the next pass comes only when the
// expectation expires. Without ChildEvents, a new orphan asks for no pass, so an owner adopts the orphan
// in its next pass.
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
	// The controller has no queue of its own, so it can ask for passes only in the queues that come with
	// events.
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

// awaitRestore waits until ctx ends or the server was restored from a backup. After a restore,
// awaitRestore returns an error, which ends the manager.
func (r *Reconciler[O, C]) awaitRestore(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.restored:
		return err
	}
}

// NewTerm notes that from now on only this process is active; see controller.Controller.NewTerm. If you
// use Add, you need not call NewTerm, because a manager ends when it loses its lease. A manager starts its
// caches before it elects a leader, so only a program without an election can call NewTerm before the
// caches start.
func (r *Reconciler[O, C]) NewTerm(ctx context.Context, namespace string) {
	r.made().NewTerm(ctx, namespace)
}

// observe returns an observer that logs the changed gates of each pass, and then calls the Kind's own
// observer.
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
