// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas/handlers"
)

// The event handlers pass each event to the controller, which decides which owner to queue, and log it as
// pkg/controller/replicaset does in Kubernetes, but events of children only if they have queued an owner.

func (a attachment[O, C]) childHandler(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			a.watches.Children.Saw(obj)
			w := waking{wake: a.wake}
			a.report(ctx, a.controller.ChildAdded(obj, w.enqueue))
			a.logChild(ctx, w, " created", obj, func(child C) []any { return []any{"detail", child} })
		},
		UpdateFunc: func(old, cur any) {
			a.watches.Children.Updated(old, cur)
			w := waking{wake: a.wake}
			a.report(ctx, a.controller.ChildUpdated(old, cur, w.enqueue))
			a.logChild(ctx, w, " objectMeta updated.", cur, func(child C) []any {
				return []any{"oldObjectMeta", metaOf(old), "curObjectMeta", metaOf(child)}
			})
			a.logLater(ctx, w, cur)
		},
		DeleteFunc: func(obj any) {
			a.watches.Children.Saw(obj)
			w := waking{wake: a.wake}
			a.report(ctx, a.controller.ChildDeleted(obj, w.enqueue))
			a.logChildDeleted(ctx, w, inTombstone(obj))
		},
	}
}

func (a attachment[O, C]) ownerHandler(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			a.watches.Owners.Saw(obj)
			a.logOwner(ctx, "Adding", obj)
			a.report(ctx, a.controller.OwnerAdded(obj))
		},
		UpdateFunc: func(old, cur any) {
			a.watches.Owners.Updated(old, cur)
			a.logOwnerUpdated(ctx, old, cur)
			a.report(ctx, a.controller.OwnerUpdated(old, cur))
		},
		DeleteFunc: func(obj any) {
			a.watches.Owners.Saw(obj)
			a.logOwner(ctx, "Deleting", inTombstone(obj))
			a.report(ctx, a.controller.OwnerDeleted(obj))
		},
	}
}

func (a attachment[O, C]) report(ctx context.Context, err error) {
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Ignoring an event", "kind", a.kind)
	}
}

// A waking records whether an event has queued an owner, and with which delay.
type waking struct {
	wake  handlers.Enqueue
	woke  bool
	later time.Duration // the longest delay, or 0 if the owners were queued without a delay
}

func (w *waking) enqueue(owner types.NamespacedName, after time.Duration) {
	w.woke, w.later = true, max(w.later, after)
	w.wake(owner, after)
}

func (a attachment[O, C]) logChild(ctx context.Context, w waking, event string, obj any, details func(C) []any) {
	child, ok := obj.(C)
	logger := klog.FromContext(ctx).V(4)
	switch {
	case !w.woke || !ok || !logger.Enabled():
		return
	case child.GetDeletionTimestamp() != nil:
		a.logChildDeleted(ctx, w, obj)
		return
	}
	subject := a.typed.Child.Kind
	if metav1.GetControllerOfNoCopy(child) == nil {
		subject = "Orphan " + subject
	}
	logger.Info(subject+event, append([]any{logKey(a.typed.Child.Kind), klog.KObj(child)}, details(child)...)...)
}

func (a attachment[O, C]) logChildDeleted(ctx context.Context, w waking, obj any) {
	child, ok := obj.(C)
	if !w.woke || !ok {
		return
	}
	var deletionTimestamp any // a nil *metav1.Time cannot be printed
	if t := child.GetDeletionTimestamp(); t != nil {
		deletionTimestamp = t
	}
	klog.FromContext(ctx).V(4).Info(a.typed.Child.Kind+" deleted", "deletion_timestamp", deletionTimestamp, logKey(a.typed.Child.Kind), klog.KObj(child))
}

// logLater logs the delay until the availability check of a child that has just become ready (M6).
func (a attachment[O, C]) logLater(ctx context.Context, w waking, obj any) {
	if child, ok := obj.(C); ok && w.later > 0 {
		name := logKey(a.typed.Child.Kind)
		klog.FromContext(ctx).V(2).Info(name+" will be enqueued after a while for availability check", "duration", int(w.later/time.Second), "kind", a.kind, name, klog.KObj(child))
	}
}

func (a attachment[O, C]) logOwner(ctx context.Context, event string, obj any) {
	if owner, ok := obj.(O); ok {
		klog.FromContext(ctx).V(4).Info(event, logKey(a.kind), klog.KObj(owner))
	}
}

func (a attachment[O, C]) logOwnerUpdated(ctx context.Context, oldObj, curObj any) {
	logger := klog.FromContext(ctx).V(4)
	old, oldOK := oldObj.(O)
	cur, curOK := curObj.(O)
	if !logger.Enabled() || !oldOK || !curOK {
		return
	}
	was, wasErr := a.typed.Spec(old)
	is, isErr := a.typed.Spec(cur)
	if wasErr == nil && isErr == nil && was.Replicas != is.Replicas {
		name := logKey(a.kind)
		logger.Info(name+" updated. Desired "+logKey(a.typed.Child.Kind)+" count change.", name, klog.KObj(old), "oldReplicas", was.Replicas, "newReplicas", is.Replicas)
	}
}

func metaOf(obj any) any {
	if accessor, ok := obj.(metav1.ObjectMetaAccessor); ok {
		return accessor.GetObjectMeta()
	}
	return nil
}

func inTombstone(obj any) any {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}
