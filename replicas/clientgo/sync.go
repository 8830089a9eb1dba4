package clientgo

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/slowstart"
)

func (c *Controller) work(ctx context.Context) {
	for ctx.Err() == nil && c.workOne(ctx) {
	}
}

// workOne works on the next owner and reports whether there may be more.
func (c *Controller) workOne(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	shift := c.crew.begin(key, func() { c.replaceWorker(ctx, key) })
	if shift == nil {
		klog.FromContext(ctx).V(4).Info("Putting off a sync: too many take long in its namespace", "kind", c.kind.Kind, "key", key)
		return true
	}
	requeueAfter, err := c.syncSafely(ctx, key)
	c.logError(ctx, key, err)
	c.requeue(key, requeueAfter, err)
	return c.endShift(shift)
}

// replaceWorker starts a worker in place of one whose pass takes long.
func (c *Controller) replaceWorker(ctx context.Context, key types.NamespacedName) {
	klog.FromContext(ctx).V(2).Info("A sync takes long. Another worker takes the place of its own", "kind", c.kind.Kind, "key", key)
	c.metrics.slowPasses.WithLabelValues(c.kind.Kind).Inc()
	c.crew.start(func() { c.work(ctx) })
}

// endShift reports whether the worker is still needed.
func (c *Controller) endShift(s *shift) bool {
	goOn, putOff := s.end()
	if !goOn {
		c.metrics.slowPasses.WithLabelValues(c.kind.Kind).Dec()
	}
	for _, key := range putOff {
		c.queue.Add(key)
	}
	return goOn
}

// requeue sees to it that the owner is looked at again. A refused spec waits for
// the owner to change; a delay that the server asked for takes the place of the
// rate limiter.
func (c *Controller) requeue(key types.NamespacedName, after time.Duration, err error) {
	_, refused := errors.AsType[*replicas.RefusedError](err)
	if err != nil && !refused && after <= 0 {
		c.queue.AddRateLimited(key)
		return
	}
	if err == nil || refused {
		c.queue.Forget(key)
	}
	if after > 0 {
		c.queue.AddAfter(key, after)
	}
}

// wake is how the router asks for a pass. Of several delays the queue keeps the
// earliest (M5).
func (c *Controller) wake(key types.NamespacedName, after time.Duration) {
	if after <= 0 {
		c.queue.Add(key)
		return
	}
	c.queue.AddAfter(key, after)
}

// syncSafely makes a panic the error of this owner alone.
func (c *Controller) syncSafely(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		stack := debug.Stack()
		if p, ok := value.(*slowstart.Panic); ok { // of a call
			value, stack = p.Value, p.Stack
		}
		klog.FromContext(ctx).Error(nil, "Observed a panic", "kind", c.kind.Kind, "key", key, "panic", value, "stacktrace", string(stack))
		requeueAfter, err = 0, fmt.Errorf("clientgo: panic: %v", value)
	}()
	return c.sync(ctx, key)
}

// sync makes one pass for an owner: Y1 to Y13. It is never called twice at once
// for one key (V18).
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() {
		start := c.clock.Now()
		defer func() {
			logger.Info("Finished syncing", "kind", c.kind.Kind, "key", key, "duration", c.clock.Since(start))
		}()
	}
	if wait := c.cacheIsStale(key); wait > 0 {
		return wait, nil
	}
	owner, exists := c.owner(key.Namespace, key.Name)
	if !exists {
		klog.FromContext(ctx).V(4).Info("deleted", "kind", c.kind.Kind, "key", key)
		c.reconciler.Forget(expectations.Key{NamespacedName: key})
		return 0, nil
	}
	spec, err := c.spec(owner)
	if err != nil {
		c.reconciler.Refuse(owner, err)
		return 0, err
	}
	spec.BurstReplicas, spec.Rules.Order = c.burst, c.order
	start := c.clock.Now()
	result, err := c.reconciler.Reconcile(ctx, spec, func(context.Context) ([]*corev1.Pod, error) {
		return c.candidates(owner)
	})
	c.logResult(ctx, spec, result)
	passErr := err
	if result, err = c.report(ctx, owner, result, err); passErr == nil && apierrors.IsConflict(err) {
		err = overtaken{err}
	}
	c.metrics.observePass(c.kind.Kind, result, c.clock.Since(start))
	return result.RequeueAfter, err
}

// cacheIsStale returns how long to wait for the caches to see what earlier
// passes for this owner wrote; 0 if they have.
func (c *Controller) cacheIsStale(key types.NamespacedName) time.Duration {
	stale, ready := c.reconciler.Consistency.Ready(expectations.Key{NamespacedName: key})
	if ready {
		return 0
	}
	c.metrics.staleSyncSkips.WithLabelValues(stale.Resource.Group, stale.Resource.Resource).Inc()
	return stale.RetryAfter
}

// beforeScale is told what a pass is about to do.
func (c *Controller) beforeScale(ctx context.Context, spec replicas.Spec, owned []*corev1.Pod, scale replicas.Scale) {
	logger := klog.FromContext(ctx).V(2)
	if scale.Create > 0 {
		logger.Info("Too few replicas", "replicaSet", klog.KObj(spec.Owner), "need", spec.Replicas, "creating", scale.Create)
		return
	}
	logger.Info("Too many replicas", "replicaSet", klog.KObj(spec.Owner), "need", spec.Replicas, "deleting", len(scale.Delete))
	c.metrics.observeAgeRatio(owned, scale.Delete, spec.Now)
}

// logResult tells what the error of a pass does not.
func (c *Controller) logResult(ctx context.Context, spec replicas.Spec, result replicas.Result) {
	owner := klog.KObj(spec.Owner)
	if result.RelatedErr != nil {
		utilruntime.HandleErrorWithContext(ctx, result.RelatedErr, "Ranking without related pods", "kind", c.kind.Kind, "replicaSet", owner)
	}
	if result.Conflicts > 0 || result.LiveLists > 0 {
		klog.FromContext(ctx).V(2).Info("Pods changed while they were deleted. Listed them live", "conflicts", result.Conflicts, "deleted", len(result.Deleted), "waiting", result.Waiting, "kind", c.kind.Kind, "replicaSet", owner)
	}
	if result.Held {
		klog.FromContext(ctx).V(2).Info("Holding creations or deletions", "for", result.RequeueAfter, "kind", c.kind.Kind, "replicaSet", owner)
	}
	if result.Failed > 0 && len(result.Active) < int(spec.Replicas) {
		klog.FromContext(ctx).V(2).Info("Slow-start failure. Skipping creation of pods, decrementing expectations", "podsSkipped", result.Failed+result.Skipped, "kind", c.kind.Kind, "replicaSet", owner)
	}
}
