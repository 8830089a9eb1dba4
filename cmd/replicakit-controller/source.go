// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/internal/shard"
)

// A source lists and watches one resource, in all namespaces.
type source struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// sourceOf makes a source of a typed client's List and Watch.
func sourceOf[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error), watch func(context.Context, metav1.ListOptions) (watch.Interface, error)) source {
	return source{func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return list(ctx, opts) }, watch}
}

// A partialSource drops what is not in a range. If it is told to, it asks the
// server to leave that out: a server that does says so in each list, and is then
// asked for a watch of the same. Servers of one cluster may differ, and one that
// does not know the option ignores it, so everything is looked at here all the
// same.
type partialSource struct {
	source
	shard.Range
	ask    bool // the server to leave out the rest
	logger klog.Logger

	served, told atomic.Bool // the server left out the rest of the last list; the log says so
}

// onlyOurs gives the factory informers that keep what is in the worker's range.
// Without one there is nothing to do.
func (w *worker) onlyOurs(ctx context.Context, factory informers.SharedInformerFactory) {
	if w.shard == nil {
		return
	}
	keep := func(resource string, object runtime.Object, source func(kubernetes.Interface) source) {
		logger := klog.LoggerWithValues(klog.FromContext(ctx), "shard", w.shard.index, "resource", resource)
		factory.InformerFor(object, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			p := &partialSource{source: source(client), Range: w.shard.Range, ask: w.opts.shardedListAndWatch, logger: logger}
			return cache.NewSharedIndexInformer(p.listerWatcher(client), object, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		})
	}
	keep("pods", &corev1.Pod{}, func(client kubernetes.Interface) source {
		pods := client.CoreV1().Pods(metav1.NamespaceAll)
		return sourceOf(pods.List, pods.Watch)
	})
	for _, c := range w.controllers {
		keep(c.resource.Resource, c.object, c.source)
	}
}

// listerWatcher is for an informer. Lists that are streamed bear no word about what
// the server left out: they are not asked for if that matters.
func (p *partialSource) listerWatcher(client kubernetes.Interface) cache.ListerWatcher {
	lw := &cache.ListWatch{ListWithContextFunc: p.listOurs, WatchFuncWithContext: p.watchOurs}
	if p.ask {
		return unstreamed{lw}
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, client)
}

// unstreamed lists are lists, and not the beginning of a watch.
type unstreamed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by the informer.
func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

func (p *partialSource) listOurs(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := p.listAsked(ctx, opts)
	if err != nil {
		return nil, err
	}
	p.note(list)
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	return list, meta.SetList(list, slices.DeleteFunc(items, func(item runtime.Object) bool { return !p.isOurs(item) }))
}

// listAsked asks once more without the option if the server does not take it.
func (p *partialSource) listAsked(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if !p.ask {
		return p.list(ctx, opts)
	}
	asking := opts
	asking.ShardSelector = p.Selector()
	list, err := p.list(ctx, asking)
	if apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsInternalError(err) {
		p.logger.Error(err, "The server refuses a list of a range: listing everything")
		return p.list(ctx, opts)
	}
	return list, err
}

// note finds out whether the server left out what is not in the range.
func (p *partialSource) note(list runtime.Object) {
	if !p.ask {
		return
	}
	about, ok := list.(metav1.ShardedListInterface)
	served := ok && about.GetShardInfo() != nil && about.GetShardInfo().Selector == p.Selector()
	if before := p.served.Swap(served); before == served && p.told.Swap(true) {
		return
	}
	if served {
		p.logger.Info("The server sends only what is in the range")
		return
	}
	p.logger.Info("The server sends everything, and what is not in the range is dropped: does it have the feature gate ShardedListAndWatch?")
}

func (p *partialSource) watchOurs(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if p.served.Load() {
		opts.ShardSelector = p.Selector()
	}
	all, err := p.watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	ours := &partialWatch{Interface: all, events: make(chan watch.Event), stopped: make(chan struct{})}
	go ours.filter(p.isOurs)
	return ours, nil
}

func (p *partialSource) isOurs(object runtime.Object) bool {
	about, err := meta.Accessor(object)
	return err == nil && p.Contains(about.GetNamespace())
}

// A partialWatch passes on the events of some objects. Unlike watch.Filter it
// leaves nothing behind when it is stopped.
type partialWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (w *partialWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *partialWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

// filter goes on until the watch ends. Bookmarks and errors are about no object.
func (w *partialWatch) filter(keep func(runtime.Object) bool) {
	defer close(w.events)
	for event := range w.Interface.ResultChan() {
		if event.Type != watch.Bookmark && event.Type != watch.Error && !keep(event.Object) {
			continue
		}
		select {
		case w.events <- event:
		case <-w.stopped:
			return
		}
	}
}
