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
	slotHoldFirst, slotHoldLast           = time.Second, time.Minute
	ownerHoldFirst, ownerHoldLast         = 50 * time.Millisecond, time.Second
	ownerReadLast, ownerGoneLast          = 10 * time.Second, 5 * time.Minute
)

// setAsideWait is how long an orphan is left alone that the server refuses to give to the
// owner, and a child that it refuses to take from it.
const setAsideWait = time.Minute

// leftHold is how long an owner is not read again because children of it left.
const leftHold = time.Minute

// holdIsTold is how long a hold is when an event tells of it: a shorter one is
// over before anybody looks.
const holdIsTold = time.Second

// A hold keeps calls back for a while. The zero hold is none. A Recording has holds, rounds
// and asides as they are here.
type hold struct {
	Since time.Time     `json:"since"` // when the calls that led to it had ended
	Wait  time.Duration `json:"wait"`
	// At is how many children there were when the quota was full: fewer end the
	// hold. 0 if it is no quota that holds.
	At int `json:"at,omitempty"`
}

// double makes the hold last twice as long as the one before, within bounds.
func (h *hold) double(now time.Time, first, last time.Duration) {
	*h = hold{Since: now, Wait: min(max(2*h.Wait, first), last)}
}

// remaining is how long calls must still wait, with so many children there. A
// clock that went back starts the hold again.
func (h *hold) remaining(now time.Time, children int) time.Duration {
	if children < h.At {
		return 0
	}
	if now.Before(h.Since) {
		h.Since = now
	}
	return h.Wait - now.Sub(h.Since)
}

// holds are those of creations, by the namespace of the children or by their names.
type holds map[string]*hold

// of returns the hold of a namespace or name, to be set.
func (h *holds) of(what string) *hold {
	if *h == nil {
		*h = holds{}
	}
	if (*h)[what] == nil {
		(*h)[what] = new(hold)
	}
	return (*h)[what]
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
	Version   string    `json:"version,omitempty"` // of the child then
	First     time.Time `json:"first,omitzero"`    // when it began; zero if the server called it Invalid
	Hold      hold      `json:"hold"`
	Undecided bool      `json:"undecided,omitempty"` // the server has not refused it for good: it may be ours yet
}
