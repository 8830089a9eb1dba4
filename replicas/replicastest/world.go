// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"time"

	"github.com/replicakit/replicakit/internal/object"
)

// A Part is something that acts at certain times, such as a Cluster, a Controller, a View or a
// Worker. A Part acts only in a call of Step, so the caller of Step decides what happens next.
type Part interface {
	// Due returns the time at which the Part acts next, and whether the Part has anything to do. A
	// Part that has nothing to do may get something to do when another Part acts.
	Due() (time.Time, bool)
	// Step performs the Part's next action, if that action is due.
	Step()
}

// A World is a clock and the Parts that act according to that clock.
type World struct {
	Clock *Clock
	Parts []Part
}

// Run lets the time d pass, and steps each Part whenever it is due. If several Parts are due at
// the same time, the first of them in Parts acts first. If d is 0, Run steps the Parts until
// nothing more is due at the current time.
//
// If Parts keep each other busy although no time passes, Run panics after a million steps.
func (w *World) Run(d time.Duration) {
	end := w.Clock.Now().Add(d)
	w.RunUntil(end, nil)
	w.Clock.Advance(end.Sub(w.Clock.Now()))
}

// RunUntil steps the Parts until done returns true, or until no Part is due at or before end.
// RunUntil reports whether done returned true. After RunUntil, the clock shows the time of the
// last step. If done is nil, RunUntil stops only when no Part is due at or before end.
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
			panic("replicastest: parts keep each other busy and no time passes")
		}
		part.Step()
	}
	return true
}

// next returns the Part that is due first, and the time at which it is due.
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
