// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
)

// readySince is since when the children of an owner have been ready, as far as was
// seen: a pod tells it by itself, others do not. It is never too early, so that the
// pass that it asks for does not come before the child is available. The zero value
// knows nothing. Passes and event handlers use it at the same time.
//
// The delayed wakes of events are not enough: of several for one owner a work queue
// keeps the earliest, and some keep none beside one that is due (M5). They do not
// come at all for children that were ready before the process began, that were
// adopted, or whose owner has another MinReadySeconds now.
type readySince struct {
	mu sync.Mutex
	at map[types.UID]time.Time
}

// became notes that a child became ready: a pass cannot see that it was not ready
// for a moment.
func (r *readySince) became(child types.UID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at != nil {
		r.at[child] = now
	}
}

// next notes which children are ready by now, and returns how long it takes until the
// next of them has been so for minReady; 0 if there is none to wait for.
func (r *readySince) next(ready []types.UID, now time.Time, minReady time.Duration) (after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.at
	r.at = make(map[types.UID]time.Time, len(ready))
	for _, id := range ready {
		since, known := was[id]
		if !known || now.Before(since) { // the clock went back
			since = now
		}
		r.at[id] = since
		if left := minReady - now.Sub(since); left > 0 {
			after = earliest(after, left)
		}
	}
	return after
}

// forget is for an owner that does not ask for how long a child is ready.
func (r *readySince) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = nil
}

// becameReady notes that a child of an owner became ready.
func (r *reconciler[O, C]) becameReady(owner expectations.Key, child C) {
	if state := r.owners.get(owner); state != nil {
		state.ready.became(object.ID(child), r.opts.Now())
	}
}

// nextCheck asks for a requeue when the next child becomes available (M1, M2), unless
// the rate limiter does anyway (M7): where a server or a hold has its place, it may not.
func (p *pass[O, C]) nextCheck(passErr error) {
	after := p.nextAvailable()
	switch {
	case after <= 0:
	case passErr == nil || onlyRefused(passErr):
		p.comeBack(after)
	case p.retryAfter > 0:
		p.retryAfter = min(p.retryAfter, after)
	}
}

// nextAvailable is how long it takes until the next child becomes available, 0 if
// there is none to wait for.
func (p *pass[O, C]) nextAvailable() time.Duration {
	if pods, ok := any(p.counted).([]*corev1.Pod); ok {
		return p.nextPodAvailable(pods)
	}
	minReady := time.Duration(p.spec.MinReadySeconds) * time.Second
	if minReady <= 0 || p.rules.Ready == nil {
		p.state.ready.forget()
		return 0
	}
	var ready []types.UID
	for _, c := range p.counted {
		if p.rules.Ready(c) {
			ready = append(ready, object.ID(c))
		}
	}
	return p.state.ready.next(ready, p.opts.Now(), minReady)
}

// nextPodAvailable looks from the same instant as the status that was written, so that
// no pod falls between the two.
func (p *pass[O, C]) nextPodAvailable(pods []*corev1.Pod) (after time.Duration) {
	if p.Counts.Ready == p.Counts.Available {
		return 0
	}
	for _, c := range pods {
		after = earliest(after, pod.AvailableIn(c, p.spec.MinReadySeconds, p.Now))
	}
	if after == 0 {
		return 0
	}
	return max(after-p.opts.Now().Sub(p.Now), 1)
}
