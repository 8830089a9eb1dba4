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

// DefaultWorkers is how many owners a Controller works on at once if Run is given 0.
const DefaultWorkers = 5

// Options are the settings of a Controller. A zero field means its default. So does a nil pointer in a
// field that is an interface.
type Options struct {
	// Name is the name of the controller in its metrics, and of the work queue in the queue's metrics. ""
	// means the owners' kind in lower case, or "replicationmanager" for ReplicationControllers.
	Name string
	// BurstReplicas is the most children that a pass creates or deletes. 0 means the burst of the Kind's
	// Spec. A negative number is refused.
	BurstReplicas int
	// MaxParallel, ExpectationsTimeout, BackOffFailed, StatusDelay and UnfilteredChildren are the same as
	// in controller.Options.
	MaxParallel         int
	ExpectationsTimeout time.Duration
	BackOffFailed       *bool
	StatusDelay         time.Duration
	UnfilteredChildren  bool
	// OnRestored is called once if the API server was restored from a backup; see controller.ErrRestored.
	// Run then goes on, but no longer makes changes. nil means that Run ends with the error. End the process
	// then, so that it starts again with new caches.
	OnRestored func(error)
	// Namespace is the namespace of the informers. The server is asked for its version there. "" means all
	// namespaces.
	Namespace string
	// Watches are the watches of the client that fills the informers. If a watch hangs, it is ended, and
	// the informer lists its objects again. nil means that such a watch is only reported in the log, in the
	// metric replicakit_watch_age_seconds, and by CheckWatches. docs/adopting.md in this repository says
	// which failures are noticed, and when.
	Watches *transport.Watches
	// Clock is the clock of the controller and of its work queue. nil means the
	// real clock.
	Clock clock.WithTicker
	// RateLimiter says how long to wait after a pass that failed. Two controllers
	// must not share one. nil means the default of Kubernetes' controllers.
	RateLimiter workqueue.TypedRateLimiter[types.NamespacedName]

	// Events receives the events about owners. nil means that EventClient records them.
	Events controller.EventSink
	// EventClient records events while Run runs. Pass the CoreV1 of a kubernetes.Interface. nil means that
	// no events are recorded.
	EventClient typedcorev1.EventsGetter
	// Component is the source of the recorded events. "" means the owners' kind in lower case and
	// "-controller", or "replication-controller" for ReplicationControllers.
	Component string

	// MetricsRegisterer registers the controller's own metrics. Controllers with different Names may share
	// it. A controller replaces an earlier one with the same Name. nil means that they are not registered.
	MetricsRegisterer prometheus.Registerer
	// QueueMetrics makes the metrics of the work queue. nil means the provider that workqueue.SetProvider
	// sets for the process.
	QueueMetrics workqueue.MetricsProvider
}

// A Controller keeps the children of all owners of one kind, and writes the owners' status. Make it with
// New, NewReplicaSetController or NewReplicationManager. Any other Controller does nothing.
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

// New returns a controller for the owners of a kind that the informers know. It adds its handlers and
// indexes to both informers, which may be shared and may be running already. typed.NewClient makes the
// client. Kind.Observe is called for each pass, after the pass was logged and counted. ctx is only used for
// its logger.
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

// orElse returns the option, or otherwise if the option is nil or a nil pointer.
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

// An attachment is the part of a Controller that has the types of a kind.
type attachment[O, C controller.Object] struct {
	*Controller
	typed controller.Kind[O, C] // as the caller passed it
	view  *loggedView[O, C]
}

// attach makes the controller and adds its metrics, indexes and handlers. The handlers come last, because
// events may arrive at once.
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

// resourceOf guesses the resource of a kind.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural
}

// withBurst returns a Spec with another burst, or the same Spec if burst is 0.
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

// Run works until ctx ends, and then returns nil. If the API server was restored from a backup, Run returns
// an error that wraps controller.ErrRestored, unless Options.OnRestored is set. The program should end
// then. Before Run returns, it shuts the queue down, waits for every worker to finish its pass, and stops
// the event broadcaster. If the caches do not fill before ctx ends, no worker starts. Call Run once.
//
// workers is how many owners are worked on at once. Two workers never work on the same owner. 0 means
// DefaultWorkers. A negative number is an error.
//
// A pass that takes longer than a second, for example because a webhook hangs, does not count. Another
// worker takes its place. There are at most four such passes for each worker. If a namespace has such a
// pass, it has at most as many passes under way as there are workers.
//
// Differs from Kubernetes: workers start when the handlers have seen the first lists, instead of when the
// caches are filled. Otherwise the children in these lists could be mistaken for children that the first
// passes create. A few owners whose calls hang do not delay the others.
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

// cachesPatience is how long the caches may take to fill before the log names possible reasons.
const cachesPatience = 10 * time.Second

// waitForCaches reports whether the handlers have seen the first lists. If ctx ends first, it returns
// false.
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

// logWatch returns the log of the watches.
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

// CheckWatches returns an error if the watch of the owners or of the children has not followed the server
// for three minutes. It returns nil if Run has not been called, or if the client is no
// controller.Versioner. Use it for a health check, because the watch works again after the kubelet restarts
// the program. The request is ignored, and may be nil.
func (c *Controller) CheckWatches(*http.Request) error {
	if c == nil {
		return nil
	}
	return c.watches.Check()
}

// NewTerm says that from now on only this process works; see controller.Controller.NewTerm. You do not need
// it if you make a new Controller for each term, or call Run only when the lease is held. If a program
// starts the informers when it holds its lease already or needs none, call NewTerm right before. That saves
// a wait of up to two seconds before the first change:
//
//	c.NewTerm(ctx)
//	factory.Start(ctx.Done())
func (c *Controller) NewTerm(ctx context.Context) {
	if c != nil {
		c.controller.NewTerm(ctx, c.namespace)
	}
}

// checkParts returns an error if an informer or the client is nil, or was made from nil.
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

// withKind adds the owners' kind to an error, if it is known.
func withKind(kind string, err error) error {
	if kind == "" {
		return err
	}
	return fmt.Errorf("%s controller: %w", kind, err)
}
