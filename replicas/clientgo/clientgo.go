// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/replicakit/replicakit/internal/follow"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/transport"
	"github.com/replicakit/replicakit/replicas/typed"
)

// DefaultWorkers is how many owners a Controller works on at once if Run is given
// 0.
const DefaultWorkers = 5

// Options are the settings of a Controller. Each zero field means its default, and so
// does a nil pointer in a field that is an interface.
type Options struct {
	// Name is the name of the controller in its metrics, and of the work queue in
	// the queue's metrics. "" means the kind of the owners in lower case, and
	// "replicationmanager" for ReplicationControllers.
	Name string
	// BurstReplicas is how many children a pass creates or deletes at most. 0 means
	// what the Kind's Spec says. Negative is refused.
	BurstReplicas int
	// MaxParallel, ExpectationsTimeout, BackOffFailed, StatusDelay and UnfilteredChildren are those
	// of controller.Options.
	MaxParallel         int
	ExpectationsTimeout time.Duration
	BackOffFailed       *bool
	StatusDelay         time.Duration
	UnfilteredChildren  bool
	// OnRestored is called once if the API server turns out to be restored from a backup; see
	// controller.ErrRestored. Run then goes on, and makes no more changes. nil means that Run
	// ends with the error. End the process then, so that it starts again with new caches.
	OnRestored func(error)
	// Namespace is that of the informers, in which the server is asked for its version. "" means all
	// namespaces.
	Namespace string
	// Watches are those of the client that the informers list and watch with. If a watch hangs, it is
	// ended, and the informer lists its objects anew. nil means that a watch that hangs is only
	// reported: in the log, in the metric replicakit_watch_age_seconds, and by CheckWatches.
	// docs/adopting.md in this repository says what is noticed when.
	Watches *transport.Watches
	// Clock is the clock of the controller and of its work queue. nil means the
	// real clock.
	Clock clock.WithTicker
	// RateLimiter says how long to wait after a pass that failed. Two controllers
	// must not share one. nil means the default of Kubernetes' controllers.
	RateLimiter workqueue.TypedRateLimiter[types.NamespacedName]

	// Events takes the events about owners. nil means that they are recorded with
	// EventClient.
	Events controller.EventSink
	// EventClient records events as long as Run runs. Pass the CoreV1 of a
	// kubernetes.Interface. nil means that no events are recorded.
	EventClient typedcorev1.EventsGetter
	// Component is the source of the recorded events. "" means the kind of the
	// owners in lower case and "-controller", and "replication-controller" for
	// ReplicationControllers.
	Component string

	// MetricsRegisterer registers the controller's own metrics. Controllers with
	// different Names may share it; a controller replaces an earlier one with the
	// same Name. nil means that they are not registered.
	MetricsRegisterer prometheus.Registerer
	// QueueMetrics makes the metrics of the work queue. nil means the provider of
	// the process, which workqueue.SetProvider sets.
	QueueMetrics workqueue.MetricsProvider
}

// A Controller keeps the children of all owners of one kind, and writes the owners'
// status. New, NewReplicaSetController or NewReplicationManager makes it; any other
// does nothing.
type Controller struct {
	kind       string // of the owners
	childKind  string
	namespace  string // of the informers
	clock      clock.WithTicker
	metrics    metrics
	handled    []cache.InformerSynced
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName]
	controller *controller.Controller
	recording  *recording
	crew       *crew // since Run
	watches    follow.Watches
	restored   chan error
}

// New returns a controller for the owners of a kind that the informers know. It
// adds its handlers and indexes to both informers, which may be shared and may be
// running already. typed.NewClient makes the client. Kind.Observe is called for each
// pass, after the pass was logged and counted. Of ctx only the logger is used.
func New[O, C controller.Object](ctx context.Context, kind controller.Kind[O, C], client controller.Client[O, C], owners, children cache.SharedIndexInformer, opts Options) (*Controller, error) {
	if opts.BurstReplicas < 0 {
		return nil, fmt.Errorf("clientgo: burst replicas %d is negative", opts.BurstReplicas)
	}
	if err := checkParts(owners, children, client); err != nil {
		return nil, err
	}
	opts = opts.withDefaults(kind.Owner)
	c := &Controller{
		kind:      kind.Owner.Kind,
		childKind: kind.Child.Kind,
		namespace: opts.Namespace,
		clock:     opts.Clock,
		queue:     newQueue(opts),
		recording: newRecording(kind.Owner, opts),
		restored:  make(chan error, 1),
	}
	if opts.OnRestored == nil {
		opts.OnRestored = func(err error) { c.restored <- err }
	}
	a := attachment[O, C]{c, kind, &loggedView[O, C]{owner: kind.Owner.Kind}}
	if err := a.attach(ctx, client, owners, children, opts); err != nil {
		c.queue.ShutDown()
		return nil, fmt.Errorf("clientgo: %w", withKind(kind.Owner.Kind, err))
	}
	return c, nil
}

func (o Options) withDefaults(kind schema.GroupVersionKind) Options {
	name := strings.ToLower(kind.Kind)
	component := name + "-controller"
	if kind.GroupKind() == corev1.SchemeGroupVersion.WithKind("ReplicationController").GroupKind() { // N5, Z6
		name, component = "replicationmanager", "replication-controller"
	}
	o.Name, o.Component = cmp.Or(o.Name, name), cmp.Or(o.Component, component)
	o.Clock = orElse[clock.WithTicker](o.Clock, clock.RealClock{})
	o.RateLimiter = orElse(o.RateLimiter, workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	o.Events, o.EventClient = orElse(o.Events, nil), orElse(o.EventClient, nil)
	o.MetricsRegisterer, o.QueueMetrics = orElse(o.MetricsRegisterer, nil), orElse(o.QueueMetrics, nil)
	return o
}

// orElse returns what an option is if it is nil, or a nil pointer.
func orElse[T any](option, otherwise T) T {
	if isNil(option) {
		return otherwise
	}
	return option
}

func newQueue(opts Options) workqueue.TypedRateLimitingInterface[types.NamespacedName] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(opts.RateLimiter,
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
			Name:            opts.Name,
			MetricsProvider: opts.QueueMetrics,
			Clock:           opts.Clock,
		})
}

// An attachment is what a Controller consists of that has the types of a kind.
type attachment[O, C controller.Object] struct {
	*Controller
	typed controller.Kind[O, C] // as the caller has it
	view  *loggedView[O, C]
}

// attach makes the controller and adds what it needs to registerer and informers.
// Handlers come last: events may come in at once.
func (a attachment[O, C]) attach(ctx context.Context, client controller.Client[O, C], owners, children cache.SharedIndexInformer, opts Options) (err error) {
	kind := a.typed
	kind.Spec = withBurst(kind.Spec, opts.BurstReplicas)
	kind.Observe = a.observe
	a.controller, err = controller.New(kind, logged(client, kind.Child.Kind), a.view, a.wake, controller.Options{
		Now:                 a.clock.Now,
		Events:              a.recording.sink(opts),
		MaxParallel:         opts.MaxParallel,
		ExpectationsTimeout: opts.ExpectationsTimeout,
		BackOffFailed:       opts.BackOffFailed,
		StatusDelay:         opts.StatusDelay,
		UnfilteredChildren:  opts.UnfilteredChildren,
		OnRestored:          opts.OnRestored,
	})
	if err != nil {
		return err
	}
	if a.view.Cache, err = typed.NewCache(a.typed, owners, children); err != nil {
		return err
	}
	a.watches = follow.New(kind, client, a.view.Cache, follow.Source{
		OwnersVersion: owners.LastSyncResourceVersion, ChildrenVersion: children.LastSyncResourceVersion,
		Namespace: opts.Namespace, Owners: resourceOf(kind.Owner), Children: resourceOf(kind.Child), Transport: opts.Watches,
	})
	samples := func() []controller.Sample { return append(a.controller.Metrics(), a.watches.Samples()...) }
	if a.metrics, err = newMetrics(opts.MetricsRegisterer, opts.Name, samples, kind.Owner, kind.Child); err != nil {
		return err
	}
	ownerEvents, err := owners.AddEventHandler(a.ownerHandler(ctx))
	if err != nil {
		return err
	}
	childEvents, err := children.AddEventHandler(a.childHandler(ctx))
	if err != nil {
		return err
	}
	a.handled = []cache.InformerSynced{childEvents.HasSynced, ownerEvents.HasSynced}
	return nil
}

// resourceOf returns the resource of a kind, as far as it can be guessed.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural
}

// withBurst is a Spec with another burst, unless that is 0.
func withBurst[O, C controller.Object](spec func(O) (replicas.Spec[C], error), burst int) func(O) (replicas.Spec[C], error) {
	if spec == nil || burst == 0 {
		return spec
	}
	return func(owner O) (replicas.Spec[C], error) {
		s, err := spec(owner)
		s.BurstReplicas = burst
		return s, err
	}
}

// Run works until ctx ends, and returns nil then. If the API server was restored from a backup,
// it ends by itself with an error that wraps controller.ErrRestored, unless Options.OnRestored is
// set. The program should end then. Run returns when everything that it started has ended:
// the queue is shut down, every worker has finished its pass, and the event
// broadcaster is stopped. If the caches do not fill before ctx ends, no worker
// starts. Call Run once.
//
// workers is how many owners are worked on at once; never are two workers at one
// owner. 0 means DefaultWorkers. A negative number is an error.
//
// A pass that takes longer than a second, because of a webhook that hangs, for
// example, does not count: another worker takes its place. There are at most four
// such passes for each worker. A namespace that has such a pass has no more passes
// under way than there are workers.
//
// Differs from Kubernetes: workers start when the handlers have seen the first
// lists, not when the caches have. Otherwise the children in these lists could be
// taken for children that the first passes create. A few owners whose calls hang do
// not keep the others waiting.
func (c *Controller) Run(ctx context.Context, workers int) error {
	if c == nil || c.controller == nil {
		return errors.New("clientgo: New did not make this Controller")
	}
	logger, name := klog.FromContext(ctx), strings.ToLower(c.kind)
	if workers < 0 {
		c.queue.ShutDown()
		return fmt.Errorf("clientgo: %s controller: the number of workers %d is negative", c.kind, workers)
	}
	if ctx.Err() != nil {
		c.queue.ShutDown()
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer c.recording.start(ctx)()
	logger.Info("Starting controller", "name", name)
	c.crew = newCrew(cmp.Or(workers, DefaultWorkers))
	var following sync.WaitGroup
	following.Go(func() { c.watches.Follow(ctx, c.logWatch(logger)) })
	defer following.Wait()
	defer func() {
		logger.Info("Shutting down controller", "name", name)
		stop()
		c.queue.ShutDown()
		c.crew.wait()
	}()
	if !c.waitForCaches(ctx) {
		return nil
	}
	for range c.crew.workers {
		c.crew.start(func() { c.work(ctx) })
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.restored:
		logger.Error(err, "The API server was restored from a backup: no more changes are made, and the program should be started again", "name", name)
		return err
	}
}

// cachesPatience is how long the caches may take to fill before the log says why they may
// never do.
const cachesPatience = 10 * time.Second

// waitForCaches reports whether the handlers have seen the first lists, and not ctx ended.
func (c *Controller) waitForCaches(ctx context.Context) bool {
	filled, telling := make(chan struct{}), sync.WaitGroup{}
	defer telling.Wait()
	defer close(filled)
	telling.Go(func() {
		select {
		case <-filled:
			return
		case <-c.clock.After(cachesPatience):
		}
		for i, kind := range []string{c.childKind, c.kind} {
			if !c.handled[i]() {
				klog.FromContext(ctx).Error(nil, "Still waiting for the first list: is the informer started, does the server serve the kind (is its CustomResourceDefinition installed), and may it be listed and watched?", "kind", kind)
			}
		}
	})
	return cache.WaitForNamedCacheSyncWithContext(ctx, c.handled...)
}

// logWatch logs what becomes of watches.
func (c *Controller) logWatch(logger klog.Logger) follow.Log {
	return func(err error, message string, keysAndValues ...any) {
		keysAndValues = append(keysAndValues, "controller", strings.ToLower(c.kind))
		if err != nil {
			logger.Error(err, message, keysAndValues...)
			return
		}
		logger.Info(message, keysAndValues...)
	}
}

// CheckWatches returns an error if the watch of the owners or of the children has not followed the
// server for three minutes. It returns nil if Run has not been called, or if the client is no
// controller.Versioner. Use it for a health check: a kubelet that starts the program anew mends the
// watch. The request is ignored, and may be nil.
func (c *Controller) CheckWatches(*http.Request) error {
	if c == nil {
		return nil
	}
	return c.watches.Check()
}

// NewTerm tells the Controller that this process alone is at work from now on; see
// controller.Controller.NewTerm. A Controller that is made anew for each term, or that Run starts
// only once a lease is held, needs no call. But if a program holds its lease, or needs none, before
// it starts the informers, then a call right before that saves a wait of up to two seconds
// before the first change:
//
//	c.NewTerm(ctx)
//	factory.Start(ctx.Done())
func (c *Controller) NewTerm(ctx context.Context) {
	if c != nil {
		c.controller.NewTerm(ctx, c.namespace)
	}
}

// checkParts returns an error if one of what a controller is made from is nil, or is
// made from nil.
func checkParts(owners, children, client any) error {
	switch {
	case isNil(owners):
		return errors.New("clientgo: the informer of owners is nil")
	case isNil(children):
		return errors.New("clientgo: the informer of children is nil")
	case client == nil:
		return errors.New("clientgo: client is nil")
	case isNil(client):
		return fmt.Errorf("clientgo: client is a nil %T", client)
	}
	if c, ok := client.(controller.Checker); ok {
		return c.Check()
	}
	return nil
}

// isNil reports whether an interface is nil or holds a nil pointer.
func isNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// withKind tells which controller could not be made, if that is known.
func withKind(kind string, err error) error {
	if kind == "" {
		return err
	}
	return fmt.Errorf("%s controller: %w", kind, err)
}
