// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A limiter is a rate limiter that uses the delay of a failed pass, such as a server's Retry-After. After an error,
// controller-runtime asks the rate limiter, and ignores the delay in the result.
type limiter struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	mu    sync.Mutex
	after map[reconcile.Request]time.Duration
}

func newLimiter(otherwise workqueue.TypedRateLimiter[reconcile.Request]) *limiter {
	if isNil(otherwise) {
		otherwise = workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	}
	return &limiter{TypedRateLimiter: otherwise, after: map[reconcile.Request]time.Duration{}}
}

// next sets the delay before the request is retried. Reconcile calls it before it returns an error.
func (l *limiter) next(req reconcile.Request, after time.Duration) {
	if after <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after[req] = after
}

// Forget discards the delay that next has set too.
func (l *limiter) Forget(req reconcile.Request) {
	l.mu.Lock()
	delete(l.after, req)
	l.mu.Unlock()
	l.TypedRateLimiter.Forget(req)
}

// When returns the delay that next has set, once, and otherwise that of the inner rate limiter.
func (l *limiter) When(req reconcile.Request) time.Duration {
	l.mu.Lock()
	after, told := l.after[req]
	delete(l.after, req)
	l.mu.Unlock()
	if told {
		return after
	}
	return l.TypedRateLimiter.When(req)
}
