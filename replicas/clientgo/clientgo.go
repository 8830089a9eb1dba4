package clientgo

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// DefaultWorkers is how many owners a Controller works on at once where Run is
// given 0.
const DefaultWorkers = 5

// Options are the settings of a Controller that few need. Each zero field means
// what the constructors without Options do.
type Options struct {
	// Clock is the clock of the controller and of its work queue; nil means the
	// real one.
	Clock clock.WithTicker
	// MaxParallel caps the calls under way at once for one owner; 0 means
	// replicas.DefaultMaxParallel, negative is refused.
	MaxParallel int
	// MetricsRegisterer registers the controller's own metrics; several
	// controllers may share it. nil leaves them unregistered.
	MetricsRegisterer prometheus.Registerer
	// QueueMetrics makes the metrics of the work queue, which are named
	// "replicaset" or "replicationmanager"; nil means the process's, see
	// workqueue.SetProvider.
	QueueMetrics workqueue.MetricsProvider
	// OmitTerminatingReplicas leaves status.terminatingReplicas of ReplicaSets
	// out, for servers that drop the field.
	OmitTerminatingReplicas bool
	// Order says who is deleted first; the zero Order is Kubernetes'. Kubernetes'
	// feature gate PodDeletionCost, turned off, is an order without that
	// criterion.
	Order podrank.Order[*corev1.Pod]
}

// A Controller keeps the pods of all owners of one kind, and reports their
// status.
type Controller struct {
	kind      schema.GroupVersionKind
	component string
	burst     int
	order     podrank.Order[*corev1.Pod]
	clock     clock.WithTicker
	client    kubernetes.Interface
	metrics   metrics

	pods, owners         cache.Indexer
	podIndex, ownerIndex string
	handled              []cache.InformerSynced

	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName]
	router     *replicas.Router
	reconciler *replicas.Reconciler
	spec       func(owner metav1.Object) (replicas.Spec, error)
	report     reportFunc
	crew       *crew // since Run
}

type reportFunc func(ctx context.Context, owner metav1.Object, result replicas.Result, err error) (replicas.Result, error)

// A kind is all that differs between ReplicaSets and ReplicationControllers.
type kind[T metav1.Object] struct {
	schema.GroupVersionKind
	resource  schema.GroupResource
	queue     string // N5
	component string // Z6
	informer  cache.SharedIndexInformer
	probe     T // see addIndex
	client    ownerClient[T]
	spec      func(T) (replicas.Spec, error)
	describe  func(was, is T) string
	reporter  func(*Controller, replicas.StatusClient[T]) reporter[T]
}

type reporter[T metav1.Object] interface {
	Report(ctx context.Context, owner T, result replicas.Result, err error) (replicas.Result, error)
}

// specOf is spec for what a cache returns.
func (k kind[T]) specOf(owner metav1.Object) (replicas.Spec, error) {
	typed, ok := owner.(T)
	if !ok {
		return replicas.Spec{}, fmt.Errorf("clientgo: %T is no %s", owner, k.Kind)
	}
	return k.spec(typed)
}

func (k kind[T]) reportFor(c *Controller) reportFunc {
	reporter := k.reporter(c, statusClient[T]{ownerClient: k.client, cached: c.owner, describe: k.describe})
	return func(ctx context.Context, owner metav1.Object, result replicas.Result, err error) (replicas.Result, error) {
		typed, _ := owner.(T) // specOf let it pass
		return reporter.Report(ctx, typed, result, err)
	}
}

// newController serves both kinds.
func newController[T metav1.Object](ctx context.Context, k kind[T], pods cache.SharedIndexInformer, client kubernetes.Interface, burst int, opts Options) (*Controller, error) {
	if burst < 0 {
		return nil, fmt.Errorf("clientgo: burst replicas %d is negative", burst)
	}
	if opts.MaxParallel < 0 {
		return nil, fmt.Errorf("clientgo: MaxParallel %d is negative", opts.MaxParallel)
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	c := &Controller{
		kind:      k.GroupVersionKind,
		component: k.component,
		burst:     burst,
		order:     opts.Order,
		clock:     opts.Clock,
		client:    client,
		pods:      pods.GetIndexer(),
		owners:    k.informer.GetIndexer(),
		queue:     newQueue(k.queue, opts),
		spec:      k.specOf,
	}
	c.reconciler = &replicas.Reconciler{
		Kind:         c.kind,
		Pods:         PodControl{Client: client.CoreV1()},
		Expectations: &expectations.Store[expectations.Key]{Now: c.clock.Now},
		Owners:       k.client,
		Related:      c.related,
		Consistency:  c.newConsistencyStore(k.resource),
		MaxParallel:  opts.MaxParallel,
		Now:          c.clock.Now,
		BeforeScale:  c.beforeScale,
	}
	c.report = k.reportFor(c)
	c.router = &replicas.Router{
		Kind:         c.kind,
		Owner:        c.owner,
		OwnersIn:     c.ownersIn,
		Spec:         c.spec,
		Expectations: c.reconciler.Expectations,
		Forget:       c.reconciler.Forget,
		Wake:         c.wake,
	}
	if err := c.attach(ctx, pods, k.informer, k.probe, opts.MetricsRegisterer); err != nil {
		c.queue.ShutDown()
		return nil, fmt.Errorf("clientgo: %s controller: %w", k.Kind, err)
	}
	return c, nil
}

func newQueue(name string, opts Options) workqueue.TypedRateLimitingInterface[types.NamespacedName] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName](),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
			Name:            name,
			MetricsProvider: opts.QueueMetrics,
			Clock:           opts.Clock,
		})
}

// attach adds what the controller needs to registerer and informers. Handlers
// come last: events may come in at once.
func (c *Controller) attach(ctx context.Context, pods, owners cache.SharedIndexInformer, probe any, registerer prometheus.Registerer) (err error) {
	if c.metrics, err = newMetrics(registerer); err != nil {
		return err
	}
	c.metrics.slowPasses.WithLabelValues(c.kind.Kind) // 0 at first
	if _, err = register(registerer, newPendingCollector(c.kind.Kind, c.reconciler.Expectations)); err != nil {
		return err
	}
	if c.podIndex, err = addIndex(pods, podIndexName, indexPod, podProbes()...); err != nil {
		return err
	}
	if c.ownerIndex, err = addIndex(owners, ownerIndexName, indexOwner, probe); err != nil {
		return err
	}
	ownerEvents, err := owners.AddEventHandler(c.ownerHandler(ctx))
	if err != nil {
		return err
	}
	podEvents, err := pods.AddEventHandler(c.podHandler(ctx))
	if err != nil {
		return err
	}
	c.handled = []cache.InformerSynced{podEvents.HasSynced, ownerEvents.HasSynced}
	return nil
}

// Run works until ctx ends, and returns when all that it started has ended: the
// queue is shut down, every worker has finished its pass, and the event
// broadcaster is stopped. Each worker has one owner at a time and no owner has
// two workers. 0 workers means DefaultWorkers; a negative number is refused with
// a log line. A pass that takes longer than a second, for a webhook that hangs
// say, does not count: another worker takes its place, until there are four such
// passes for each worker. A namespace with such a pass has no more passes under
// way than there are workers. Where the caches do not fill before ctx ends, no worker starts.
// Call it once.
//
// Differs from Kubernetes: workers start when the handlers have seen the initial
// lists, not when the caches have: else those pods could be taken for pods that
// the first passes create. A few owners whose calls hang do not keep the others
// waiting.
func (c *Controller) Run(ctx context.Context, workers int) {
	logger, name := klog.FromContext(ctx), strings.ToLower(c.kind.Kind)
	if workers < 0 {
		logger.Error(nil, "Refusing to start controller: the number of workers is negative", "name", name, "workers", workers)
		c.queue.ShutDown()
		return
	}
	defer c.startEvents(ctx).Shutdown()
	logger.Info("Starting controller", "name", name)
	c.crew = newCrew(cmp.Or(workers, DefaultWorkers))
	defer func() {
		logger.Info("Shutting down controller", "name", name)
		c.queue.ShutDown()
		c.crew.wait()
	}()
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.handled...) {
		return
	}
	for range c.crew.workers {
		c.crew.start(func() { c.work(ctx) })
	}
	<-ctx.Done()
}

// startEvents starts the event broadcaster. It does not end with ctx but after
// the last pass, which has events too.
func (c *Controller) startEvents(ctx context.Context) record.EventBroadcaster {
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)),
		record.WithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: spamKey}))
	broadcaster.StartStructuredLogging(3)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: c.component})
	c.reconciler.Events = eventSink{recorder.WithLogger(klog.FromContext(ctx))}
	return broadcaster
}

// owner returns an owner from the cache.
func (c *Controller) owner(namespace, name string) (metav1.Object, bool) {
	obj, exists, err := c.owners.GetByKey(cache.NewObjectName(namespace, name).String())
	owner, ok := obj.(metav1.Object)
	return owner, ok && exists && err == nil
}

func (c *Controller) ownersIn(namespace string) (owners []metav1.Object) {
	_ = cache.ListAllByNamespace(c.owners, namespace, labels.Everything(), func(obj any) {
		if owner, ok := obj.(metav1.Object); ok {
			owners = append(owners, owner)
		}
	})
	return owners
}

// newConsistencyStore compares own writes with what the stores behind the
// listers have seen: an informer itself runs ahead of its store (X8).
func (c *Controller) newConsistencyStore(ownerResource schema.GroupResource) *expectations.ConsistencyStore {
	stores := map[schema.GroupResource]cache.Store{
		{Resource: "pods"}: c.pods,
		ownerResource:      c.owners,
	}
	return &expectations.ConsistencyStore{
		Now: c.clock.Now,
		ReadVersion: func(resource schema.GroupResource) string {
			store, ok := stores[resource]
			if !ok {
				return ""
			}
			return store.LastStoreSyncResourceVersion()
		},
	}
}
