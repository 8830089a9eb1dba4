// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

// A worker runs the controllers. Its clients write only as long as the permit allows it.
type worker struct {
	*manager
	permit *permit // nil: writes need no lease
	writes writes
	others *others     // since work
	end    func(error) // end working, with an error
	begun  atomic.Bool // a controller works that looked for others first
}

// client returns a client for the controllers, with a rate limit of its own (Z3). It sends
// no write that the permit forbids.
func (w *worker) client(name string) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(w.configFor(name))
}

func (w *worker) configFor(name string) *rest.Config {
	config := w.manager.configFor(name)
	if w.permit != nil {
		config.Wrap(w.permit.wrap)
	}
	config.Wrap(w.writes.wrap)
	config.Wrap(clientgo.CapRetryAfter)
	return config
}

// work runs the controllers until ctx ends, and returns after the last pass and
// the last write. It works once.
func (w *worker) work(ctx context.Context) error {
	defer w.writes.drain()
	clients, err := w.clients()
	if err != nil {
		return err
	}
	w.others = newOthers(w.manager)
	defer w.others.telling.Wait()
	admitted := map[string]chan struct{}{}
	for _, c := range w.controllers {
		admitted[c.name] = make(chan struct{})
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w.end = stop
	if !w.opts.allowOthers {
		w.others.proven = w.standBack
	}
	for _, namespace := range w.opts.watched() {
		cell, err := w.newCell(ctx, namespace, clients)
		if err != nil {
			return err
		}
		running.Go(func() { cell.run(ctx, admitted) })
	}
	for _, c := range w.controllers {
		running.Go(func() {
			if err := w.serveAlone(ctx, c, func() { close(admitted[c.name]) }); err != nil {
				stop(err)
			}
		})
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// clients are those of a worker: one for the informers, one for each controller.
type clients struct {
	informers   kubernetes.Interface
	relister    *relister // of the informers' client
	followers   metadata.Interface
	controllers map[string]kubernetes.Interface
}

func (w *worker) clients() (all clients, err error) {
	all.controllers = map[string]kubernetes.Interface{}
	for _, c := range w.controllers {
		if all.controllers[c.name], err = w.client(c.name); err != nil {
			return clients{}, err
		}
	}
	if all.followers, err = metadata.NewForConfig(w.configFor("followers")); err != nil {
		return clients{}, err
	}
	informers := w.configFor("shared-informers")
	all.relister = newRelister()
	all.relister.install(informers)
	all.informers, err = kubernetes.NewForConfig(informers)
	return all, err
}

// A cell is what works on one namespace, or on all.
type cell struct {
	*worker
	namespace   string // "" means all
	factory     informers.SharedInformerFactory
	controllers map[string]*clientgo.Controller
	runaways    map[string]*runaways
	followers   []*follower
}

func (w *worker) newCell(ctx context.Context, namespace string, clients clients) (*cell, error) {
	c := &cell{worker: w, namespace: namespace, controllers: map[string]*clientgo.Controller{}, runaways: map[string]*runaways{}}
	c.factory = informers.NewSharedInformerFactoryWithOptions(clients.informers, resync(), informers.WithNamespace(namespace))
	pods := c.factory.Core().V1().Pods().Informer()
	trimmer := newTrimmer(w.others.mark)
	if err := pods.SetTransform(trimmer.trim); err != nil {
		return nil, err
	}
	if err := w.others.watch(ctx, c.factory); err != nil {
		return nil, err
	}
	follow := func(resource schema.GroupVersionResource, informer cache.SharedIndexInformer) {
		c.followers = append(c.followers, newFollower(resource, namespace, clients.followers, informer, func() {
			w.relists.WithLabelValues(resource.Resource).Inc()
			clients.relister.relist(resource, namespace)
		}))
		w.relists.WithLabelValues(resource.Resource)
	}
	follow(corev1.SchemeGroupVersion.WithResource("pods"), pods)
	for _, kind := range w.controllers {
		client := clients.controllers[kind.name]
		c.runaways[kind.name] = newRunaways()
		w.orders.deletions.WithLabelValues(kind.queue, w.orders.flag.label) // at 0, so that the first one is an increase
		set := settings{queue: kind.queue, orders: w.orders, passes: w.passes, pods: trimmer, passed: c.runaways[kind.name].note, isProbe: w.others.isProbe}
		built, err := kind.build(ctx, c.factory, client, set, clientgo.Options{
			BurstReplicas:     w.opts.burstReplicas,
			EventClient:       client.CoreV1(),
			MetricsRegisterer: w.registerer(namespace),

			ExpectationsTimeout: w.opts.expectationsTimeout,
			BackOffFailed:       &w.opts.podFailureBackOff,
			StatusDelay:         w.opts.statusDelay,
			UnfilteredChildren:  true,
			OnRestored:          func(err error) { w.restoredServer(ctx, err) },
		})
		if err != nil {
			return nil, err
		}
		c.controllers[kind.name] = built
		follow(kind.resource, kind.informer(c.factory))
	}
	return c, nil
}

// registerer tells the metrics of several cells apart.
func (w *worker) registerer(namespace string) prometheus.Registerer {
	if len(w.opts.namespaces) > 1 {
		return prometheus.WrapRegistererWith(prometheus.Labels{"namespace": namespace}, w.registry)
	}
	return w.registry
}

// run fills the caches, runs each controller from when it is admitted until ctx ends, and
// returns after the last pass.
func (c *cell) run(ctx context.Context, admitted map[string]chan struct{}) {
	defer c.working.add(c)()
	c.newTerm(ctx)
	c.factory.StartWithContext(ctx)
	defer c.factory.Shutdown()
	var running sync.WaitGroup
	for _, f := range c.followers {
		running.Go(func() { f.follow(ctx) })
	}
	for name, built := range c.controllers {
		running.Go(func() {
			select {
			case <-admitted[name]:
			case <-ctx.Done():
			}
			if err := built.Run(ctx, *c.opts.workers[name]); err != nil {
				c.end(err)
			}
		})
	}
	running.Wait()
}

// termPatience is how long the informers wait for the answers that save the first passes a wait.
const termPatience = 5 * time.Second

// newTerm has the controllers ask the server how far it has come. The lease is held, and the caches
// are empty.
func (c *cell) newTerm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, termPatience)
	defer cancel()
	for _, built := range c.controllers {
		built.NewTerm(ctx, c.namespace)
	}
}

// missing are the resources that have not been listed yet.
func (c *cell) missing() []string {
	var missing []string
	if !c.factory.Core().V1().Pods().Informer().HasSynced() {
		missing = append(missing, "pods")
	}
	for _, kind := range c.worker.controllers {
		if !kind.informer(c.factory).HasSynced() {
			missing = append(missing, kind.resource.Resource)
		}
	}
	return missing
}

// wrong is what keeps the watches from telling what there is.
func (c *cell) wrong() error {
	errs := make([]error, 0, len(c.followers))
	for _, f := range c.followers {
		_, _, err := f.behind()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// resync is a random time from 12 to 24 hours, so that several managers do not
// do it at once (Z3).
func resync() time.Duration {
	return time.Duration((1 + rand.Float64()) * float64(12*time.Hour))
}

// A set is what several goroutines add to and take from. The zero set is empty.
type set[T comparable] struct {
	mu       sync.Mutex
	elements []T
}

func (s *set[T]) add(element T) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.elements = append(s.elements, element)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.elements = slices.DeleteFunc(s.elements, func(e T) bool { return e == element })
	}
}

func (s *set[T]) all() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.elements)
}
