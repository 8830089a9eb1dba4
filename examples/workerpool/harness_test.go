// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimeconfig "sigs.k8s.io/controller-runtime/pkg/config"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/replicakit/replicakit/examples/workerpool/api/v1"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

const (
	patience = 3 * time.Minute
	tick     = 25 * time.Millisecond
)

// A world is a namespace of a cluster, and a client for the test. The operator has its own client.
type world struct {
	t         *testing.T
	client    client.WithWatch
	namespace string
	transform toolscache.TransformFunc // the transform function of the operator's caches; nil means none
	ctx       context.Context          //nolint:containedctx // what the operator's contexts derive from; nil means a plain one
}

func newWorld(t *testing.T, config *rest.Config) world {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1.AddToScheme(scheme))
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 1000, 1000
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	return world{t: t, client: c, namespace: ns.Name}
}

// operate runs the operator in the world's namespace until the test ends. The returned function stops the operator
// earlier.
func (w world) operate(expectationsTimeout time.Duration, configs ...*rest.Config) (stop func()) {
	w.t.Helper()
	for i, config := range configs {
		configs[i] = rest.CopyConfig(config)
		configs[i].QPS, configs[i].Burst = 1000, 1000
	}
	mgr, err := w.manager(expectationsTimeout, configs...)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(w.t, mgr.Start(ctx))
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	w.t.Cleanup(stop)
	return stop
}

// manager makes the operator for the world's namespace.
func (w world) manager(expectationsTimeout time.Duration, configs ...*rest.Config) (manager.Manager, error) {
	anyName := true
	if w.ctx == nil {
		w.ctx = context.Background()
	}
	return newManager(manager.Options{
		BaseContext: func() context.Context { return w.ctx },
		Metrics:     metricsserver.Options{BindAddress: "0"},
		Cache:       cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}, DefaultTransform: w.transform},
		Controller:  runtimeconfig.Controller{SkipNameValidation: &anyName},
	}, controllerruntime.Options{
		Runtime:    runtimecontroller.Options{MaxConcurrentReconciles: 4},
		Controller: controller.Options{ExpectationsTimeout: expectationsTimeout},
	}, configs...)
}

// work marks each new Worker as ready, like a program that runs the Workers. Workers with the image "broken" stay
// unready.
func (w world) work() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	events := w.watch()
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-events:
				worker, ok := e.Object.(*v1.Worker)
				if ok && e.Type == watch.Added && worker.Spec.Image != "broken" {
					ready := client.RawPatch(types.MergePatchType, []byte(`{"status":{"ready":true}}`))
					if err := w.client.Status().Patch(ctx, worker, ready); ctx.Err() == nil {
						assert.NoError(w.t, client.IgnoreNotFound(err))
					}
				}
			}
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// watch returns all later events of the namespace's Workers, each once. If the server ends the watch, a new watch
// continues after the last event.
func (w world) watch() <-chan watch.Event {
	w.t.Helper()
	var list v1.WorkerList
	require.NoError(w.t, w.client.List(w.t.Context(), &list, client.InNamespace(w.namespace)))
	watcher, err := toolswatch.NewRetryWatcherWithContext(context.Background(), list.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return w.client.Watch(ctx, &v1.WorkerList{}, client.InNamespace(w.namespace), &client.ListOptions{Raw: &opts})
		},
	})
	require.NoError(w.t, err)
	w.t.Cleanup(watcher.Stop)
	return watcher.ResultChan()
}

func (w world) pool(replicas int32) *v1.WorkerPool { return newPool(w.namespace, replicas) }

func newPool(namespace string, replicas int32) *v1.WorkerPool {
	set := map[string]string{"app": "web"}
	return &v1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: v1.WorkerPoolSpec{
			Replicas: replicas, MaxUnavailable: 1000,
			Selector: metav1.LabelSelector{MatchLabels: set},
			Template: v1.WorkerTemplate{Labels: set, Spec: v1.WorkerSpec{Image: "one"}},
		},
	}
}

func (w world) create(objs ...client.Object) {
	w.t.Helper()
	for _, obj := range objs {
		require.NoError(w.t, w.client.Create(w.t.Context(), obj))
	}
}

// patch changes the spec of the pool.
func (w world) patch(format string, args ...any) {
	w.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":`+format+`}`, args...))
	require.NoError(w.t, w.client.Patch(w.t.Context(), w.pool(0), patch))
}

func (w world) scale(replicas int) {
	w.t.Helper()
	w.patch(`{"replicas":%d}`, replicas)
}

func (w world) workers() []v1.Worker {
	w.t.Helper()
	var list v1.WorkerList
	require.NoError(w.t, w.client.List(w.t.Context(), &list, client.InNamespace(w.namespace)))
	return list.Items
}

func (w world) get() v1.WorkerPool {
	w.t.Helper()
	var pool v1.WorkerPool
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(w.pool(0)), &pool))
	return pool
}

// settled waits until the number of Workers is want, and the status shows this number and the current generation.
func (w world) settled(want int) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		assert.Len(c, w.workers(), want)
		s := w.get().Status
		assert.Equal(c, int32(want), s.Replicas)
		assert.Equal(c, w.get().Generation, s.ObservedGeneration)
	}, patience, tick)
}

// counted follows the events of Workers in the order of the server. The field most is the highest number of
// Workers at any moment. The field fewestReady is the lowest number of ready Workers at any moment.
type counted struct {
	world
	mu                sync.Mutex
	alive             map[types.UID]bool // the existing Workers, and whether each one is ready
	ready             int
	most, fewestReady int
}

func (w world) count() *counted {
	w.t.Helper()
	n := &counted{world: w, alive: map[types.UID]bool{}, fewestReady: 1 << 30}
	events := w.watch()
	go func() {
		for e := range events {
			if worker, ok := e.Object.(*v1.Worker); ok {
				n.see(e.Type, worker)
			}
		}
	}()
	return n
}

func (n *counted) see(event watch.EventType, worker *v1.Worker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.alive[worker.UID] {
		n.ready--
	}
	delete(n.alive, worker.UID)
	if event != watch.Deleted {
		n.alive[worker.UID] = worker.Status.Ready
	}
	if n.alive[worker.UID] {
		n.ready++
	}
	n.most, n.fewestReady = max(n.most, len(n.alive)), min(n.fewestReady, n.ready)
}

// The method since resets the fields most and fewestReady, so that the extremes include only later events.
func (n *counted) since() {
	n.extremes()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.most, n.fewestReady = 0, 1<<30
}

// extremes waits until the events have shown as many Workers as exist, and then returns the extremes.
func (n *counted) extremes() (most, fewestReady int) {
	n.t.Helper()
	there := len(n.workers())
	require.Eventually(n.t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.alive) == there
	}, patience, tick)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.most, n.fewestReady
}
