// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

// Waits double from the first to the last value and start again after a success.
const (
	namespaceHoldFirst, namespaceHoldLast = time.Minute, 5 * time.Minute
	quotaHoldFirst, quotaHoldLast         = time.Second, time.Minute
	conflictHoldFirst, conflictHoldLast   = 50 * time.Millisecond, time.Minute
	undecidedFirst, undecidedLast         = 50 * time.Millisecond, time.Minute
	strangeHoldFirst, strangeHoldLast     = time.Second, 5 * time.Minute
	failedHoldFirst, failedHoldLast       = 10 * time.Second, 5 * time.Minute
	listHoldFirst, listHoldLast           = time.Second, 15 * time.Second
	strayFirst, strayLast                 = time.Second, 5 * time.Minute
	ownerHoldFirst, ownerHoldLast         = 50 * time.Millisecond, time.Second
	ownerReadLast, ownerGoneLast          = 10 * time.Second, 5 * time.Minute
)

// setAsideWait is how long an orphan is left alone that the server refuses to give to the
// owner, and a child that it refuses to take from it.
const setAsideWait = time.Minute

// holdIsTold is how long a hold is when an event tells of it: a shorter one is
// over before anybody looks.
const holdIsTold = time.Second

// A hold keeps calls back for a while. The zero hold is none.
type hold struct {
	since time.Time // when the calls that led to it had ended
	wait  time.Duration
	// at is how many children there were when the quota was full: fewer end the
	// hold. 0 if it is no quota that holds.
	at int
}

// double makes the hold last twice as long as the one before, within bounds.
func (h *hold) double(now time.Time, first, last time.Duration) {
	*h = hold{since: now, wait: min(max(2*h.wait, first), last)}
}

// remaining is how long calls must still wait, with so many children there. A
// clock that went back starts the hold again.
func (h *hold) remaining(now time.Time, children int) time.Duration {
	if children < h.at {
		return 0
	}
	if now.Before(h.since) {
		h.since = now
	}
	return h.wait - now.Sub(h.since)
}

// holds are those of creations, by the namespace of the children.
type holds map[string]*hold

// of returns the hold of a namespace, to be set.
func (h *holds) of(namespace string) *hold {
	if *h == nil {
		*h = holds{}
	}
	if (*h)[namespace] == nil {
		(*h)[namespace] = new(hold)
	}
	return (*h)[namespace]
}

// earliest is the shorter of two delays, of which 0 is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// aside is an orphan whose adoption failed.
type aside struct {
	version   string    // of the child then
	first     time.Time // when it began; zero if the server called it Invalid
	hold      hold
	undecided bool // the server has not refused it for good: it may be ours yet
}
