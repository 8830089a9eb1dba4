// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// limiter is a rate limiter that prefers the delay of a server, or of a hold. It is needed because
// controller-runtime asks only the rate limiter after an error.
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

// next sets the delay before the next try of a request, after an error that is about to be returned.
func (l *limiter) next(req reconcile.Request, after time.Duration) {
	if after <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after[req] = after
}

// Forget forgets the delay of next, and calls Forget of the rate limiter.
func (l *limiter) Forget(req reconcile.Request) {
	l.mu.Lock()
	delete(l.after, req)
	l.mu.Unlock()
	l.TypedRateLimiter.Forget(req)
}

// When returns the delay of next once, and otherwise that of the rate limiter.
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
