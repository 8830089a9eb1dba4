// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A limiter is a rate limiter. If a pass has returned a delay, for example because of a server's
// Retry-After, the limiter uses that delay. If Reconcile returns an error, controller-runtime ignores the
// delay in the result and calls the rate limiter instead.
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

// next(req, after) sets the delay before the request is retried. Reconcile calls this method before it
// returns an error.
func (l *limiter) next(req reconcile.Request, after time.Duration) {
	if after <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after[req] = after
}

// Forget discards the delay that a call of next(req, after) has set, and calls the inner rate limiter's
// Forget.
func (l *limiter) Forget(req reconcile.Request) {
	l.mu.Lock()
	delete(l.after, req)
	l.mu.Unlock()
	l.TypedRateLimiter.Forget(req)
}

// When implements TypedRateLimiter. If a call of next(req, after) has set a delay, the method When
// returns the delay and discards it. If no delay was set, the result is the delay of the inner rate
// limiter.
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
