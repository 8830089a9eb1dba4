// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/replicas"
)

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
		case c.GetDeletionTimestamp() != nil || c.GetCreationTimestamp().Time.Before(r.First) || !p.controls(c) || !p.snapshot.Rules.MayCount(c):
		case p.rules.Active(c):
			living++
		default:
			failed++
		}
	}
	r.look(living, failed, p.Now)
	left, held := r.left(p.Now), min(r.Ended, scale.Create)
	if left == 0 {
		return scale
	}
	why := fmt.Sprintf("Holding %d creations for %v: %d of %d %s ended soon after they were created", held, left.Round(time.Second), r.Ended, r.Made, p.childResource.Resource)
	if len(p.Released) > 0 {
		c := p.Released[0]
		why += fmt.Sprintf("; %s was released, as its labels %q do not match", c.GetName(), labels.Set(c.GetLabels()))
	}
	p.tell(LastRoundEnded, why)
	g := p.gate(LastRoundEnded, "", left, nil)
	g.Earlier, g.waits = true, held == scale.Create
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
		if p.rules.Active(c) && !c.GetCreationTimestamp().Time.Before(r.First) {
			r.Made = max(r.Made-1, 0)
		}
	}
}
