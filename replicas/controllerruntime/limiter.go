// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// limiter is a rate limiter that yields to what a server, or a hold, says about
// when to try again: controller-runtime itself asks nobody but the rate limiter
// after an error.
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

// next says when the request is to be tried again after the error that is about to
// be returned for it.
func (l *limiter) next(req reconcile.Request, after time.Duration) {
	if after <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after[req] = after
}

// Forget drops what next was told, and what the rate limiter knows.
func (l *limiter) Forget(req reconcile.Request) {
	l.mu.Lock()
	delete(l.after, req)
	l.mu.Unlock()
	l.TypedRateLimiter.Forget(req)
}

// When returns what next was told, once, and else what the rate limiter says.
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
