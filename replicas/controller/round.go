// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

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
	// hold doubles with each round of which some ended, one after the other.
	hold
	first time.Time // the first creation, by the server's clock
	made  int       // children, without those that the Controller deleted
	ended int       // of them, that ended soon: the most at once
}

// begin notes children that were created. Those that were not held back join the round
// that is.
func (r *round) begin(made int, first, now time.Time) {
	if r.ended > 0 && r.left(now) > 0 {
		r.made += made
		return
	}
	next := round{first: first, made: made, hold: hold{since: now, wait: r.wait}}
	if r.ended == 0 && now.Sub(r.since) >= r.wait { // they live
		next.wait = 0
	}
	*r = next
}

// look counts the children that ended, of which failed ones are still there.
func (r *round) look(living, failed int, now time.Time) {
	ended, age := 0, now.Sub(r.since)
	if age <= failedYoung {
		ended += failed
	}
	if age <= goneYoung {
		ended += max(r.made-living-failed, 0)
	}
	if ended = min(ended, r.made); ended > 0 && r.ended == 0 {
		r.wait = min(max(2*r.wait, failedHoldFirst), failedHoldLast)
	}
	r.ended = max(r.ended, ended)
}

// left is how long as many creations wait as children ended: the shorter, the fewer these
// were of their round.
func (r *round) left(now time.Time) time.Duration {
	if r.ended == 0 {
		return 0
	}
	scaled := hold{since: r.since, wait: max(r.wait*time.Duration(r.ended)/time.Duration(max(r.made, r.ended)), failedHoldLeast)}
	left := scaled.remaining(now, 0)
	r.since = scaled.since
	return max(left, 0)
}
