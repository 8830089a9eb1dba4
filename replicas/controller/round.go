// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/replicakit/replicakit/internal/backoff"
)

const (
	// A child that has ended counts if it ended within failedYoung of its round, and one
	// that somebody else deleted within goneYoung: later that is what people and
	// schedulers do.
	failedYoung, goneYoung = 10 * time.Minute, 10 * time.Second
	// failedHoldLeast keeps two rounds apart by the server's clock, which has whole seconds.
	failedHoldLeast = time.Second
)

// A round is what was created at once, and what became of it. The zero round is none.
// It is of a generation: who changes the owner tries something else.
type round struct {
	// Hold doubles with each round whose children ended in part, one after the other.
	Hold  backoff.Hold
	First time.Time // the first creation, by the server's clock
	Made  int       // children, without those that the Controller deleted
	Ended int       // how many of them ended soon: the most at once
}

// begin notes children that were created. Those that were not held back join the round
// that is.
func (r *round) begin(made int, first, now time.Time) {
	if r.Ended > 0 && r.left(now) > 0 {
		r.Made += made
		return
	}
	next := round{First: first, Made: made, Hold: backoff.Hold{Since: now, Wait: r.Hold.Wait}}
	if r.Ended == 0 && now.Sub(r.Hold.Since) >= r.Hold.Wait { // they live
		next.Hold.Wait = 0
	}
	*r = next
}

// look counts the children that ended: failed is how many of them are still there.
func (r *round) look(living, failed int, now time.Time) {
	ended, age := 0, now.Sub(r.Hold.Since)
	if age <= failedYoung {
		ended += failed
	}
	if age <= goneYoung {
		ended += max(r.Made-living-failed, 0)
	}
	if ended = min(ended, r.Made); ended > 0 && r.Ended == 0 {
		row := LastRoundEnded.row()
		r.Hold.Wait = min(max(2*r.Hold.Wait, row.first), row.last)
	}
	r.Ended = max(r.Ended, ended)
}

// left is how long as many creations wait as children ended: the shorter, the fewer these
// were of their round.
func (r *round) left(now time.Time) time.Duration {
	if r.Ended == 0 {
		return 0
	}
	scaled := backoff.Hold{Since: r.Hold.Since, Wait: max(r.Hold.Wait*time.Duration(r.Ended)/time.Duration(max(r.Made, r.Ended)), failedHoldLeast)}
	left := scaled.Remaining(now)
	r.Hold.Since = scaled.Since
	return max(left, 0)
}
