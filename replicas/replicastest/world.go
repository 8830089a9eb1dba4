// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"errors"
	"time"

	"github.com/replicakit/replicakit/internal/object"
)

// A Part is a component that acts at certain times, such as a Cluster, a Controller, a View or a Worker. It acts only
// when Step is called, so the caller of Step decides what happens next.
type Part interface {
	// Due returns the time of the Part's next action, and whether there is one. Other Parts can add actions to this
	// Part when they act.
	Due() (time.Time, bool)
	// Step performs the Part's next action if it is due.
	Step()
}

// A World is a clock and the Parts that act according to that clock.
type World struct {
	Clock *Clock
	Parts []Part
}

// Run advances the clock by d, and calls Step of each Part whenever it is due. Of several that are due at the same
// time, the one that comes first in the field Parts acts first. With d 0, Run calls Step until no Part is due at the
// current time. If Parts keep each other busy while the clock does not advance, Run panics after a million steps, and
// Play returns an error.
func (w *World) Run(d time.Duration) {
	end := w.Clock.Now().Add(d)
	w.RunUntil(end, nil)
	w.Clock.Advance(end.Sub(w.Clock.Now()))
}

// RunUntil runs the Parts until the function done returns true, and reports whether done has returned true. It also
// stops when no further action is due by the end time, which is the only way to stop if done is nil. Afterwards, the
// clock shows the time of the last step.
func (w *World) RunUntil(end time.Time, done func() bool) bool {
	const busy = 1_000_000
	for steps := 0; done == nil || !done(); steps++ {
		part, due := w.next()
		if part == nil || due.After(end) {
			return false
		}
		if due.After(w.Clock.Now()) {
			w.Clock.Advance(due.Sub(w.Clock.Now()))
			steps = 0
		}
		if steps > busy {
			panic(errBusy)
		}
		part.Step()
	}
	return true
}

// errBusy is the panic of a World whose Parts keep each other busy. Play returns it as the error of the story.
var errBusy = errors.New("replicastest: the simulated parts never become idle, so no time passes: for example, a call of Prepare causes an event that wakes the owner, and the next pass makes the call again")

// next returns the Part that is due first, and the time of its next action.
func (w *World) next() (first Part, at time.Time) {
	for _, part := range w.Parts {
		if object.IsNil(part) {
			continue
		}
		if due, ok := part.Due(); ok && (first == nil || due.Before(at)) {
			first, at = part, due
		}
	}
	return first, at
}

// A Clock shows virtual time, which changes only when Advance is called. The zero Clock shows the zero time, and the
// Clock of a cluster starts at Options.Start.
type Clock struct{ now time.Time }

func newClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the time that the clock shows. A nil Clock shows the zero time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.now
}

// Advance moves the clock forward by d, unless d is negative.
func (c *Clock) Advance(d time.Duration) {
	if c != nil {
		c.now = c.now.Add(max(d, 0))
	}
}
