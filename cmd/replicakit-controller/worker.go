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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/transport"
)

// A worker runs the controllers. Its clients send writes only while the fence allows writes.
type worker struct {
	*manager
	writes writes
	others *others     // nil until work is called
	end    func(error) // ends work with an error
	begun  atomic.Bool // whether a controller has passed the check for other controllers
}

// client returns a client for the controllers. All clients with the same name share one
// transport.Pace (Z3). The client does not send a write that the fence refuses.
func (w *worker) client(name string) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(w.configFor(name))
}

func (w *worker) configFor(name string) *rest.Config {
	config := w.manager.configFor(name)
	config.Wrap(w.fence.Wrap)
	config.Wrap(w.writes.wrap)
	config.Wrap(w.paces.paceFor(name, w.opts).Wrap)
	config.Wrap(clientgo.CapRetryAfter) // wrapped last, because the Pace must see the server's unmodified responses
	return config
}

// work runs the controllers until ctx is done. It returns after the last pass and the last write.
// Call work only once.
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

// clients holds the clients of a worker, one for the informers and one for each controller.
type clients struct {
	informers   kubernetes.Interface
	watches     *transport.Watches // the watches of the informers' client
	controllers map[string]kubernetes.Interface
}

func (w *worker) clients() (all clients, err error) {
	all.controllers = map[string]kubernetes.Interface{}
	for _, c := range w.controllers {
		if all.controllers[c.name], err = w.client(c.name); err != nil {
			return clients{}, err
		}
	}
	informers := w.configFor("shared-informers")
	all.watches = &transport.Watches{}
	informers.Wrap(all.watches.Wrap)
	all.informers, err = kubernetes.NewForConfig(informers)
	return all, err
}

// A cell runs the controllers for one namespace, or for all namespaces.
type cell struct {
	*worker
	namespace   string // "" means all
	factory     informers.SharedInformerFactory
	controllers map[string]*clientgo.Controller
	runaways    map[string]*runaways
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
	for _, kind := range w.controllers {
		client := clients.controllers[kind.name]
		c.runaways[kind.name] = newRunaways()
		w.orders.deletions.WithLabelValues(kind.queue, w.orders.flag.label) // starts at 0, so that the first deletion shows as an increase
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
			Namespace:           namespace,
			Watches:             clients.watches,
		})
		if err != nil {
			return nil, err
		}
		c.controllers[kind.name] = built
	}
	return c, nil
}

// registerer returns the registry of the metrics. If the flag --namespace lists several namespaces,
// the metrics of each namespace get a label with the namespace.
func (w *worker) registerer(namespace string) prometheus.Registerer {
	if len(w.opts.namespaces) > 1 {
		return prometheus.WrapRegistererWith(prometheus.Labels{"namespace": namespace}, w.registry)
	}
	return w.registry
}

// run fills the caches. The argument admitted is a map with a channel for each controller. When the
// channel of a controller is closed, run starts the controller. run returns when ctx is done and
// the last pass has ended.
func (c *cell) run(ctx context.Context, admitted map[string]chan struct{}) {
	defer c.working.add(c)()
	c.newTerm(ctx)
	c.factory.StartWithContext(ctx)
	defer c.factory.Shutdown()
	var running sync.WaitGroup
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

// termPatience is the timeout of newTerm. The informers start after newTerm has returned.
const termPatience = 5 * time.Second

// newTerm lets each controller get the current resourceVersion of the server. Caches that are
// filled later cannot be older than that resourceVersion, so the first passes do not have to wait
// for newer caches. Call newTerm when the lease is held and the caches are still empty.
func (c *cell) newTerm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, termPatience)
	defer cancel()
	for _, built := range c.controllers {
		built.NewTerm(ctx)
	}
}

// missing returns the resources that have not been listed yet.
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

// checkWatches returns an error if the CheckWatches method of any controller returns one.
func (c *cell) checkWatches() error {
	errs := make([]error, 0, len(c.controllers))
	for _, built := range c.controllers {
		errs = append(errs, built.CheckWatches(nil))
	}
	return errors.Join(errs...)
}

// resync returns a random time from 12 to 24 hours, so that several managers do not resync at the
// same time (Z3).
func resync() time.Duration {
	return time.Duration((1 + rand.Float64()) * float64(12*time.Hour))
}

// A set is a collection that is safe for concurrent use. The zero value is empty.
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
