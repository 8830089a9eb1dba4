// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"time"

	"github.com/replicakit/replicakit/replicas"
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

// notInVain leaves out as many creations as children of the last round ended soon, for a
// while. What else is missing is created.
func (p *pass[O, C]) notInVain(scale replicas.Scale[C]) replicas.Scale[C] {
	if !p.opts.BackOffFailed {
		return scale
	}
	r := &p.state.round
	living, failed := 0, 0
	for _, c := range p.children {
		switch {
		case c.GetDeletionTimestamp() != nil || c.GetCreationTimestamp().Time.Before(r.first) || !p.controls(c):
		case p.rules.Active(c):
			living++
		default:
			failed++
		}
	}
	r.look(living, failed, p.Now)
	left, held := r.left(p.Now), min(r.ended, scale.Create)
	p.tell(&p.state.told.backOff, left > 0, CreationsHeld,
		fmt.Sprintf("Holding %d creations for %v: %d of %d %s ended soon after they were created", held, left.Round(time.Second), r.ended, r.made, p.childResource.Resource))
	if left == 0 {
		return scale
	}
	p.BackedOff, p.Waiting = true, held == scale.Create
	p.comeBack(left)
	scale.Create -= held
	scale.Names = scale.Names[:scale.Create]
	return scale
}

// noteRound notes what the pass has created, from a place in Created on, and what it has
// deleted.
func (p *pass[O, C]) noteRound(created int) {
	made := p.Created[created:]
	if !p.opts.BackOffFailed || len(made) == 0 {
		return
	}
	first := made[0].GetCreationTimestamp().Time
	for _, c := range made {
		if at := c.GetCreationTimestamp().Time; at.Before(first) {
			first = at
		}
	}
	p.state.round.begin(len(made), first, p.opts.Now())
}

// noteDeleted takes children that the pass has deleted out of their round.
func (p *pass[O, C]) noteDeleted() {
	r := &p.state.round
	for _, c := range p.Deleted {
		if !c.GetCreationTimestamp().Time.Before(r.first) {
			r.made = max(r.made-1, 0)
		}
	}
}
