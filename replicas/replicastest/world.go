package replicastest

import (
	"time"

	"github.com/replicakit/replicakit/internal/object"
)

// A Part is something that acts by itself when its time has come: the Cluster, a
// View, a Worker. Parts never act on their own: somebody calls Step, and so
// chooses what happens next.
type Part interface {
	// Due returns the instant from which the part has something to do; false
	// if there is nothing until another part acts.
	Due() (time.Time, bool)
	// Step does one thing that is due, if one is.
	Step()
}

// A World is a clock and the parts that live by it.
type World struct {
	Clock *Clock
	Parts []Part
}

// Run lets d pass: each thing that falls due on the way is done at its time, in
// the order of the parts where several are due at once. With d = 0 it does what
// is due now, and what follows from that at once.
//
// Parts that keep each other busy without time passing would never let Run
// return: after a million steps in one instant it panics.
func (w *World) Run(d time.Duration) {
	end := w.Clock.Now().Add(d)
	w.RunUntil(end, nil)
	w.Clock.Advance(end.Sub(w.Clock.Now()))
}

// RunUntil steps until done reports true, which it returns, or until nothing is left
// to do up to the end; the clock then stands at the last thing done. A nil done
// never does.
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
