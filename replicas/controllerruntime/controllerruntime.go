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
//
// The metrics of the controller are registered in controller-runtime's registry, and their names begin with
// "replicakit_". Events go to the manager's recorder.
//
// The operator's role must allow it to:
//   - get, list and watch owners and children
//   - create, delete and patch children
//   - patch the status of owners
//   - update the finalizers subresource of owners, such as workerpools/finalizers
//   - create and patch Event objects
//
// For leader election, a Role in the namespace of the lease must allow it to create leases, and to get and
// update the lease by its name (resourceNames). A ClusterRole would allow it to take the leases of the
// control plane.
//
// The permission for finalizers is required if the admission plugin OwnerReferencesPermissionEnforcement is
// on, as on OpenShift. The plugin checks this permission because children block the deletion of their
// owner.
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
//
// # What is read where
//
// Passes read the cache, and find children by an index; see Index. They list the cached objects without copying
// them, so the functions of a Kind must not change these objects. Without an index, and with copies, a pass would
// copy all pods in the namespace, even for a ReplicaSet with ten pods: 34 MB with 10,000 pods; see
// BenchmarkChildren.
//
// The manager's API reader reads from the server, without a cache. With it, a pass reads the owner before the
// first adoption and before children are deleted, looks for a child whose creation failed, and lists the children
// if the cache is known to be old or the process is new.
//
// A transform of the cache (cache.Options.DefaultTransform, or ByObject.Transform) may drop fields that the
// Kind does not read, such as annotations and managedFields.
//
// You may limit the cache to namespaces, labels or fields. But when the cache contains an owner, it must also
// contain all its children, because a child outside the cache counts as missing. The index and the namespaces of
// the cache are checked when the manager starts, but not its label selectors and field selectors.
//
// # The version of the cache
//
// In controller-runtime 0.24 and later, a cache reports the resourceVersion that it has reached, and a pass waits
// until the cache shows the writes of earlier passes. In earlier releases it reports none, and neither does the
// cache of a manager with several cache.Options.DefaultNamespaces. Then a pass waits for the creations and
// deletions that the controller expects, but not for the controller's other writes of children:
//   - After a child was adopted or released, passes use the child from the server's response until the cache
//     shows the change. When that takes longer than the ExpectationsTimeout, the child is adopted or released
//     once more.
//   - After a live list, passes use each child from that list until the cache shows the same or a newer version.
//   - A new process makes one live list of an owner's children before it first creates or deletes children of
//     that owner, where one small list for all owners is sufficient with a cache that reports its
//     resourceVersion. It also makes a live read of the owner before it first creates children of that owner,
//     unless the owner was written after the process started.
//   - The restore of a server from a backup (controller.ErrRestored) is noticed later, because no list can
//     be compared with the resourceVersion of the cache.
//
// # Reads that wait for writes
//
// In controller-runtime 0.25 and later, a client's reads from the cache can wait until the cache shows the
// client's own writes (client.CacheOptions.EnableReadYourWritesConsistency). While all writes of children go through
// the client and succeed, a plain loop with this option creates no child twice. A Reconciler still keeps a record of its
// calls, for a call without an answer, a watch that hangs, a restored server and a new leader; docs/why.md compares
// the two in each of these cases. It reads the cache directly instead of through the client, so its passes never wait in
// a read, whether or not the option is on.
//
// Neither a plain loop nor a Reconciler protects you if another process writes at the same time, for example a
// previous leader that has not stopped.
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
// cluster's RESTMapper. A Reconciler of your own that embeds the result as r.Reconciler is set up with:
//
//	if err := mgr.Add(manager.RunnableFunc(r.FollowWatches)); err != nil {
//		return err
//	}
//	return ctrl.NewControllerManagedBy(mgr).Named("workerpool").
//		Watches(&WorkerPool{}, r.OwnerEvents()).Watches(&Worker{}, r.ChildEvents()).
//		WithOptions(runtimecontroller.Options{RateLimiter: r.RateLimiter()}).Complete(r)
//
// FollowWatches then begins when the process leads. Add also ends a watch that hangs before, while caches are filled.
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
