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
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/replicas/transport"
	"github.com/replicakit/replicakit/replicas/typed"
)

// DefaultWorkers is the number of workers that a Controller starts if Run is called with 0 workers.
const DefaultWorkers = 5

// Options configures a Controller. The zero value of a field, or a nil pointer in an interface, selects its default.
type Options struct {
	// Name is the controller's name in its own metrics and in the metrics of its work queue. The default is
	// the owners' kind in lower case, or "replicationmanager" for ReplicationControllers. Owners with two types
	// of children have two Kinds with the same default, so set Name for the second one.
	Name string
	// BurstReplicas is the maximum number of children that one pass creates or deletes. The default is
	// Spec.BurstReplicas, as Kind.Spec returns it. New returns an error if it is negative.
	BurstReplicas int
	// MaxParallel and the next four fields have the same meaning as in controller.Options.
	MaxParallel         int
	ExpectationsTimeout time.Duration
	BackOffFailed       *bool
	StatusDelay         time.Duration
	UnfilteredChildren  bool
	// OnRestored is called once when the API server was restored from a backup; see controller.ErrRestored.
	// Run then goes on, but the controller makes no further changes. By default, Run returns an error that
	// wraps controller.ErrRestored, and the process must exit, so that a new one starts with new caches.
	OnRestored func(error)
	// Namespace is the namespace that the informers watch. The controller reads the server's current
	// resourceVersion in the same namespace. The default is all namespaces.
	Namespace string
	// Watches records the watch requests of the informers' client. The controller ends a watch that hangs, so
	// that the informer lists its objects again. But if Watches is nil, it can only report such a watch, in the
	// log, in the metric replicakit_watch_age_seconds, and in the result of CheckWatches. The page
	// docs/adopting.md in this repository says which failures the controller notices, and how soon.
	Watches *transport.Watches
	// Clock is the clock of the controller and of its work queue. The default is the real clock.
	Clock clock.WithTicker
	// RateLimiter determines the delay between a failed pass and the next pass for the same owner. Two
	// controllers must not share one. The default is that of Kubernetes' controllers.
	RateLimiter workqueue.TypedRateLimiter[types.NamespacedName]

	// Events is the sink for events about owners. By default, they are recorded with EventClient.
	Events controller.EventSink
	// EventClient is the client that records events while Run is running, for example the CoreV1 client of a
	// kubernetes.Interface. Without it and Events, no events are recorded.
	EventClient typedcorev1.EventsGetter
	// Component is the source component of the recorded events. The default is the owners' kind in lower
	// case with the suffix "-controller". For ReplicationControllers, the default is
	// "replication-controller".
	Component string

	// MetricsRegisterer registers the controller's own metrics; nil registers none. Controllers with different
	// Names may share a registerer. The metrics of an earlier controller of the same Name are replaced.
	MetricsRegisterer prometheus.Registerer
	// QueueMetrics provides the metrics of the work queue. The default is the provider that was set for the
	// process with workqueue.SetProvider.
	QueueMetrics workqueue.MetricsProvider
}

// A Controller creates and deletes the children of all owners of one kind, and writes the owners' status.
// Make a Controller with New, NewReplicaSetController or NewReplicationManager. The zero Controller does
// nothing, and its method Run returns an error.
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
	crew       *crew // set by Run
	watches    follow.Watches
	restored   chan error
}

// New returns a Controller for all owners in the cache of their informer. New adds event handlers and
// indexes to both informers, which may be shared and may already be running. Make the client with
// typed.NewClient. After each pass, the Controller writes log lines, updates its metrics, and calls
// Kind.Observe. New uses ctx only to obtain a logger.
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
	a := attachment[O, C]{c, kind, &loggedView[O, C]{owner: kind.Owner.Kind}, telemetry.New[O, C]()}
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

// orElse returns the option, unless it is nil or holds a nil pointer.
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

// An attachment contains the parts of a Controller that depend on the Go types of owners and children.
type attachment[O, C controller.Object] struct {
	*Controller
	typed controller.Kind[O, C] // the Kind that the caller passed to New
	view  *loggedView[O, C]

	passes *telemetry.Recorder[O, C]
}

// attach makes the controller and adds its metrics, indexes and handlers.
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
	source := follow.Source{
		OwnersVersion: owners.LastSyncResourceVersion, ChildrenVersion: children.LastSyncResourceVersion,
		Namespace: opts.Namespace, OwnersKind: kind.Owner.Kind, ChildrenKind: kind.Child.Kind, Owners: resourceOf(kind.Owner), Children: resourceOf(kind.Child),
	}
	if opts.Watches != nil {
		source.Relist = opts.Watches.Relist
	}
	a.watches = follow.New(client, a.view.Owners, source)
	samples := func() []telemetry.Sample { return append(a.passes.Samples(), telemetry.OfWatches(a.watches)...) }
	if a.metrics, err = newMetrics(opts.MetricsRegisterer, opts.Name, samples, kind.Owner, kind.Child); err != nil {
		return err
	}
	// The handlers come last, because they may receive events immediately.
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

// resourceOf guesses the resource of a kind.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural
}

// withBurst returns spec with another BurstReplicas, unless burst is 0.
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

// Run runs the controller until ctx ends, and then returns nil. But when the API server was restored from a
// backup, it returns an error that wraps controller.ErrRestored, and the program should exit, unless
// Options.OnRestored is set. Before Run returns, it shuts the queue down, waits for every worker to finish its
// pass, and stops the event broadcaster. When ctx ends before the caches are filled, Run starts no workers.
// Call Run only once.
//
// The controller processes as many owners concurrently as there are workers, but never one owner twice. 0 workers
// mean DefaultWorkers, and a negative number is an error.
//
// When a pass takes longer than a second, for example because a webhook hangs, an additional worker starts,
// and the worker of the slow pass stops at its end. At most 4*workers slow passes run at the same time. While
// a namespace has a slow pass, at most workers passes run in it.
//
// Differs from Kubernetes: workers start after the event handlers have processed the initial lists, and not as
// soon as the caches are filled, because a child in the initial list could then be mistaken for one that the
// first pass has created. And when calls for a few owners hang, the other owners are not delayed.
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
	defer c.recording.start(ctx)() // stopped after the workers, whose last passes may still send events
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
		logger.Error(err, "The API server was restored from a backup. The controller makes no further changes. Restart the program", "name", name)
		return err
	}
}

// cachesPatience is the time after which waitForCaches logs why the caches may not be filled yet.
const cachesPatience = 10 * time.Second

// waitForCaches reports whether the event handlers have processed the initial lists before ctx ended.
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
				klog.FromContext(ctx).Error(nil, "Still waiting for the first list. Check that the informer is started, that the server serves the kind (its CustomResourceDefinition is installed), and that the program is allowed to list and watch it", "kind", kind)
			}
		}
	})
	return cache.WaitForNamedCacheSyncWithContext(ctx, c.handled...)
}

// logWatch returns a function with which package follow logs the state of the watches.
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

// CheckWatches returns an error if the watch of the owners or of the children is more than three minutes
// behind the server, or ahead of it, for example after the server was restored from a backup. It returns nil
// before Run is called, and if the client is no controller.Versioner. Use it as a health check, so that the
// kubelet restarts the program when a watch hangs. The request is ignored, and may be nil.
func (c *Controller) CheckWatches(*http.Request) error {
	if c == nil {
		return nil
	}
	return c.watches.Check()
}

// NewTerm informs the Controller that only this process is active from now on; see
// controller.Controller.NewTerm. It is not needed if you make a new Controller for each term of leadership, or
// call Run only while the process holds the lease. A program that holds its lease before it starts the
// informers, or needs no lease, can call NewTerm just before it starts them, which avoids a delay of up to two
// seconds before the controller's first change:
//
//	c.NewTerm(ctx)
//	factory.Start(ctx.Done())
func (c *Controller) NewTerm(ctx context.Context) {
	if c != nil {
		c.controller.NewTerm(ctx, c.namespace)
	}
}

// checkParts returns an error if an informer or the client is nil, or a Checker that finds a fault.
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

// withKind adds the owners' kind to an error, unless kind is "".
func withKind(kind string, err error) error {
	if kind == "" {
		return err
	}
	return fmt.Errorf("%s controller: %w", kind, err)
}
