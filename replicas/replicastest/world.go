// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"time"

	"github.com/replicakit/replicakit/internal/object"
)

// A Part is something that acts when its time has come, such as a Cluster, a Controller, a View or
// a Worker. It never acts by itself. The caller of Step decides what happens next.
type Part interface {
	// Due returns the time at which the part acts next, and whether it has anything to do. If it
	// has nothing to do, that may change when another part acts.
	Due() (time.Time, bool)
	// Step does one thing, if one is due.
	Step()
}

// A World is a clock and the parts that act at its times.
type World struct {
	Clock *Clock
	Parts []Part
}

// Run lets the time d pass. Everything that becomes due is done at its time. If several parts are
// due at the same time, the first of Parts acts first. If d is 0, Run does what is due now, and
// what becomes due because of that.
//
// If parts keep each other busy and no time passes, Run panics after a million steps.
func (w *World) Run(d time.Duration) {
	end := w.Clock.Now().Add(d)
	w.RunUntil(end, nil)
	w.Clock.Advance(end.Sub(w.Clock.Now()))
}

// RunUntil steps until done returns true, or until nothing is left to do up to the instant end. It
// reports whether done returned true. The clock then shows the time of the last step. A nil done
// never returns true.
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

// next returns the part that is due first, and when.
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
