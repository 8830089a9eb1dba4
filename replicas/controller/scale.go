// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
)

// scale creates or deletes what is missing or in surplus, and discards what has ended.
func (p *pass[O, C]) scale(ctx context.Context, scale replicas.Scale[C]) error {
	if p.Waiting() && scale.IsZero() {
		return nil
	}
	p.limits(scale)
	defer func() {
		p.state.active = len(p.Active) + len(p.Created) - len(p.activeOf(p.Deleted))
	}()
	if scale.IsZero() {
		if !p.lookForLost(ctx, scale) {
			p.state.nothingLeft(p.Now)
		}
		return nil
	}
	err := p.carryOut(ctx, scale)
	vetoFailed := err != nil && p.ScaleErr == nil
	if len(scale.Delete) == 0 || slices.ContainsFunc(p.Deleted, p.rules.Active) || vetoFailed || p.state.behind && !p.HeldBack() {
		return err
	}
	return joinErrors(err, p.createMissing(ctx))
}

// createMissing fills free slots although children that are in no wanted one cannot be
// deleted, or may not now.
func (p *pass[O, C]) createMissing(ctx context.Context) error {
	if p.spec.Slots == nil || ctx.Err() != nil {
		return nil
	}
	spec := p.spec
	spec.MaxDeletions = new(int)
	scale, err := replicas.ScaleTo(p.Active, spec)
	if err != nil || scale.IsZero() {
		return err
	}
	return p.carryOut(ctx, scale)
}

// carryOut creates, deletes and discards what nothing holds back and what there is room for.
func (p *pass[O, C]) carryOut(ctx context.Context, scale replicas.Scale[C]) error {
	planned, newborns := p.allowed(scale)
	if planned.IsZero() {
		return nil
	}
	scale, err := p.agreed(ctx, planned)
	p.holdTaken(ctx, scale)
	scale, roomErr := p.within(p.Active, scale)
	p.lookForLost(ctx, scale)
	if err = joinErrors(err, roomErr); scale.IsZero() {
		return err
	}
	newborns = named(newborns, planned.Names, scale.Names)
	tried := p.Scale // if this is createMissing
	if p.Scale = scale; !tried.IsZero() {
		p.Scale.Delete, p.Scale.Discard = tried.Delete, tried.Discard
	}
	if scale.Create > 0 {
		err = joinErrors(err, p.create(ctx, scale, newborns))
	}
	if victims := slices.Concat(scale.Delete, scale.Discard); len(victims) > 0 {
		defer p.noteDeleted()
		err = joinErrors(err, p.delete(ctx, victims))
	}
	return err
}

// agreed leaves out what the owner on the server, or the author's step, does not want.
func (p *pass[O, C]) agreed(ctx context.Context, scale replicas.Scale[C]) (replicas.Scale[C], error) {
	scale, err := p.ownerWants(ctx, scale) // before the author's step, which may act for the victims
	if scale.IsZero() {
		return scale, err
	}
	scale, stepErr := p.beforeScale(ctx, p.Active, scale)
	if stepErr != nil {
		return replicas.Scale[C]{}, joinErrors(err, stepErr)
	}
	return scale, err
}

// within leaves out what there is no room for, and lets the pass make the calls of the rest.
func (p *pass[O, C]) within(owned []C, scale replicas.Scale[C]) (replicas.Scale[C], error) {
	room, err := replicas.RoomOf(owned, p.spec)
	if err != nil {
		return replicas.Scale[C]{}, err
	}
	scale = room.Clamp(scale)
	p.calls.allow(scale.Create, len(scale.Delete))
	return scale, nil
}

// ownerWants leaves out what the owner on the server, as far as it has to be asked, does not
// want any more.
func (p *pass[O, C]) ownerWants(ctx context.Context, scale replicas.Scale[C]) (_ replicas.Scale[C], err error) {
	if len(scale.Delete)+len(scale.Discard) > 0 {
		var may bool
		if may, err = p.mayDelete(ctx); !may {
			scale.Delete, scale.Discard = nil, nil
		}
	}
	if scale.Create > 0 && (p.ownerOld || !p.mayCreate(ctx)) {
		scale.Create, scale.Names = 0, nil
	}
	return scale, err
}

// allowed leaves out what must wait, and asks for a requeue when it need not.
func (p *pass[O, C]) allowed(scale replicas.Scale[C]) (replicas.Scale[C], []newborn[C]) {
	if p.ownerOld {
		p.waitForOwner()
		return replicas.Scale[C]{}, nil
	}
	if len(scale.Delete)+len(scale.Discard) > 0 && p.deletionsHeld() {
		scale.Delete, scale.Discard = nil, nil
	}
	scale.Delete, scale.Discard = p.notRefused(scale.Delete), p.notRefused(scale.Discard)
	if scale.Create > 0 {
		scale = p.notInVain(scale)
	}
	if scale.Create == 0 {
		return scale, nil
	}
	return p.notHeld(scale)
}

// notRefused leaves out the deletions of children that are held after Conflicts.
func (p *pass[O, C]) notRefused(deletions []replicas.Deletion[C]) []replicas.Deletion[C] {
	if len(p.state.holds) == 0 {
		return deletions
	}
	return slices.DeleteFunc(slices.Clone(deletions), func(v replicas.Deletion[C]) bool {
		return p.held(ConflictAgain, string(object.ID(v.Object)), v.Object.GetName(), 0)
	})
}

// deletionsHeld reports whether an earlier pass, or this one, has put all deletions off.
func (p *pass[O, C]) deletionsHeld() bool {
	held := false
	for _, reason := range []Reason{Conflict, DeletionRetryAfter, DeletionFailed} {
		held = p.held(reason, "", "", 0) || held
	}
	return held
}

// limits notes what of the owner's own wishes keeps children that are too many.
func (p *pass[O, C]) limits(scale replicas.Scale[C]) {
	p.Scale.Deferred, p.Scale.Kept, p.Scale.MustStay = scale.Deferred, scale.Kept, scale.MustStay
	switch limit := p.spec.MaxDeletions; {
	case scale.Deferred == 0:
	case limit != nil && len(scale.Delete) >= *limit && scale.Create == 0:
		p.gate(MaxDeletions, "", 0, nil)
	default:
		p.gate(Burst, "", 0, nil)
	}
	if scale.Kept > 0 {
		p.gate(MissingFirst, "", 0, nil)
	}
	if scale.MustStay > 0 {
		p.gate(MustStay, "", 0, nil)
	}
}

// beforeScale asks Kind.BeforeScale, which may leave out and nothing else. A child whose
// deletion was sent without an answer is not among the active ones that it gets.
func (p *pass[O, C]) beforeScale(ctx context.Context, active []C, scale replicas.Scale[C]) (replicas.Scale[C], error) {
	if p.kind.BeforeScale == nil {
		inside.Scaling(ctx, p.Owner, active, scale)
		return scale, nil
	}
	given := scale // which may be cut down in place
	given.Names, given.Delete, given.Discard = slices.Clone(scale.Names), slices.Clone(scale.Delete), slices.Clone(scale.Discard)
	victims := idsOf(scale.Delete)
	doubted := p.state.known.Doubted()
	active = slices.DeleteFunc(slices.Clone(active), func(c C) bool {
		_, isDoubted := doubted[object.ID(c)]
		return isDoubted && !victims.Has(object.ID(c))
	})
	wrong := func(format string, args ...any) (replicas.Scale[C], error) {
		err := p.failure("BeforeScale: "+format, args...)
		p.gate(Author, "", 0, err)
		return scale, err
	}
	less, again, err := p.kind.BeforeScale(ctx, p.Owner, active, given)
	switch {
	case err != nil:
		p.gate(Author, "", again, err).waits = true
		p.refuse(err)
		return scale, p.failure("BeforeScale: %w", err)
	case again < 0:
		return wrong("%v until the next pass is negative", again)
	}
	if !areLess(less.Delete, scale.Delete) || !areLess(less.Discard, scale.Discard) {
		return wrong("a deletion was added, or is there twice")
	}
	if less.Create < 0 || less.Create > scale.Create {
		return wrong("%d creations were made of %d", less.Create, scale.Create)
	}
	if planned := sets.New(scale.Names...); len(less.Names) > len(planned.Intersection(sets.New(less.Names...))) {
		return wrong("a name was added, or is there twice: %q were planned, and there are %q", scale.Names, less.Names)
	}
	cut := scale
	cut.Create = min(less.Create, len(less.Names))
	cut.Names = less.Names[:cut.Create]
	cut.Delete, cut.Discard = keep(scale.Delete, less.Delete), keep(scale.Discard, less.Discard)
	if stops := leftOut(scale, cut); stops != 0 {
		p.gate(Author, "", again, nil).Stops = stops
	} else if again > 0 {
		p.comeBack(again)
	}
	return cut, nil
}

// leftOut says what there is less of.
func leftOut[C Object](scale, less replicas.Scale[C]) (stops Stops) {
	if less.Create < scale.Create {
		stops = StopsCreations
	}
	if len(less.Delete) < len(scale.Delete) || len(less.Discard) < len(scale.Discard) {
		stops |= StopsDeletions
	}
	return stops
}

func idsOf[C Object](deletions []replicas.Deletion[C]) sets.Set[types.UID] {
	ids := sets.New[types.UID]()
	for _, v := range deletions {
		ids.Insert(object.ID(v.Object))
	}
	return ids
}

// areLess reports whether each of the deletions is one of those that were planned, once.
func areLess[C Object](deletions, planned []replicas.Deletion[C]) bool {
	isNil, left := object.NilOf[C](), idsOf(planned)
	for _, v := range deletions {
		if isNil(v.Object) || !left.Has(object.ID(v.Object)) {
			return false
		}
		left.Delete(object.ID(v.Object))
	}
	return true
}

// keep returns those of the deletions that are in less, as they were planned.
func keep[C Object](planned, less []replicas.Deletion[C]) []replicas.Deletion[C] {
	wanted := idsOf(less)
	return slices.DeleteFunc(slices.Clone(planned), func(v replicas.Deletion[C]) bool { return !wanted.Has(object.ID(v.Object)) })
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
