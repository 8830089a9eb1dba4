// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
