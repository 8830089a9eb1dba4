// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The delay after an error begins at firstRetry, and doubles until it reaches lastRetry, as in client-go's rate
// limiter.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 1000 * time.Second
)

// A Worker is a work queue of owners' names, together with one worker that processes them. As in client-go's work
// queues, a name can be queued twice, once for now and once for later.
type Worker struct {
	Clock *Clock
	// Sync processes one name, which is queued again after the returned duration if that is positive. After an error
	// with the duration 0, the name is queued again after a delay that grows with each error. A nil Sync drops names.
	Sync func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error)

	queue    []wake
	failures map[types.NamespacedName]int
}

type wake struct {
	key types.NamespacedName
	at  time.Time
}

// Wake queues a name with the delay d, or at once if d is 0 or less. A name that is already queued for later keeps the
// earlier of the two times.
func (w *Worker) Wake(key types.NamespacedName, d time.Duration) {
	now := w.Clock.Now()
	at := now.Add(max(d, 0))
	for i := range w.queue {
		queued := &w.queue[i]
		// An event that comes now must not take the place of a later wake-up, nor the other way round.
		if queued.key == key && queued.at.After(now) == at.After(now) {
			if at.Before(queued.at) {
				queued.at = at
			}
			return
		}
	}
	w.queue = append(w.queue, wake{key, at})
}

// Due returns the time at which the next name is due, and whether there is one.
func (w *Worker) Due() (time.Time, bool) {
	next, ok := w.next()
	return next.at, ok
}

// queued returns the next time at which a name is due. For a name that is not queued, there is no pass until an event.
func (w *Worker) queued(key types.NamespacedName) (time.Time, bool) {
	var first wake
	for _, queued := range w.queue {
		if queued.key == key && (first.at.IsZero() || queued.at.Before(first.at)) {
			first = queued
		}
	}
	return first.at, !first.at.IsZero()
}

// next returns the entry that is due first, and of several the one that was queued first.
func (w *Worker) next() (next wake, ok bool) {
	for i, queued := range w.queue {
		if i == 0 || queued.at.Before(next.at) {
			next = queued
		}
	}
	return next, len(w.queue) > 0
}

// Step processes the next name if it is due.
func (w *Worker) Step() {
	now := w.Clock.Now()
	next, ok := w.next()
	if !ok || next.at.After(now) {
		return
	}
	// One pass answers all events that have come, and those that come during it queue the name again.
	w.queue = slices.DeleteFunc(w.queue, func(queued wake) bool {
		return queued.key == next.key && !queued.at.After(now)
	})
	if w.Sync == nil {
		return
	}
	again, err := w.Sync(context.Background(), next.key)
	if err == nil {
		delete(w.failures, next.key)
	} else if again <= 0 {
		again = w.backOff(next.key)
	}
	if again > 0 {
		w.Wake(next.key, again)
	}
}

func (w *Worker) backOff(key types.NamespacedName) time.Duration {
	if w.failures == nil {
		w.failures = map[types.NamespacedName]int{}
	}
	delay := firstRetry
	for range w.failures[key] {
		delay = min(2*delay, lastRetry)
	}
	w.failures[key]++
	return delay
}
