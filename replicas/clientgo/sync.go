// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/transport"
	"github.com/replicakit/replicakit/slowstart"
)

func (c *Controller) work(ctx context.Context) {
	for ctx.Err() == nil && c.workOne(ctx) {
	}
}

// workOne syncs the next owner in the queue, which no other worker syncs meanwhile (V18), and reports whether the
// worker should continue.
func (c *Controller) workOne(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	shift := c.crew.begin(key, func() { c.replaceWorker(ctx, key) })
	if shift == nil {
		klog.FromContext(ctx).V(4).Info("Putting off a sync because too many syncs in the namespace are slow", "kind", c.kind, "key", key)
		return true
	}
	requeueAfter, err := c.syncSafely(ctx, key)
	c.requeue(key, requeueAfter, err)
	return c.endShift(shift)
}

// replaceWorker starts an additional worker while another worker is busy with a slow pass.
func (c *Controller) replaceWorker(ctx context.Context, key types.NamespacedName) {
	klog.FromContext(ctx).V(2).Info("A sync takes long, so another worker starts", "kind", c.kind, "key", key)
	c.metrics.slowPasses.Inc()
	c.crew.start(func() { c.work(ctx) })
}

// endShift ends a shift, queues the owners that were put off in its place, and reports whether the worker is still
// needed.
func (c *Controller) endShift(s *shift) bool {
	goOn, putOff := s.end()
	if !goOn {
		c.metrics.slowPasses.Dec()
	}
	for _, key := range putOff {
		c.queue.Add(key)
	}
	return goOn
}

// requeue adds the owner to the queue again if another pass is needed. The delay that the pass asked for, such as a
// server's Retry-After, takes the place of the rate limiter's.
func (c *Controller) requeue(key types.NamespacedName, after time.Duration, err error) {
	if errors.Is(err, controller.ErrRestored) { // every further pass would return the same error
		c.queue.Forget(key)
		return
	}
	if err != nil && after <= 0 {
		c.queue.AddRateLimited(key)
		return
	}
	// Without an end of the back-off, the thousandth failure in the life of an owner would wait the longest time.
	if err == nil {
		c.queue.Forget(key)
	}
	if after > 0 {
		c.queue.AddAfter(key, after)
	}
}

// wake adds the owner to the queue, which keeps the earliest time for each (M5).
func (c *Controller) wake(key types.NamespacedName, after time.Duration) {
	if after <= 0 {
		c.queue.Add(key)
		return
	}
	c.queue.AddAfter(key, after)
}

// syncSafely syncs an owner, and returns a panic as an error, so that a bad owner does not end the program.
func (c *Controller) syncSafely(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		stack := debug.Stack()
		if p, ok := value.(*slowstart.Panic); ok { // a panic in a call that slowstart made
			value, stack = p.Value, p.Stack
		}
		klog.FromContext(ctx).Error(nil, "Observed a panic", "kind", c.kind, "key", key, "panic", value, "stacktrace", string(stack))
		requeueAfter, err = 0, fmt.Errorf("clientgo: panic: %v", value)
	}()
	return c.controller.Sync(transport.WithOwner(ctx, key), key)
}
