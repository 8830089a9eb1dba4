// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
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

// scaleFails notes for the status why creations or deletions failed.
func (p *pass[O, C]) scaleFails(part Stops, err error) {
	p.ScaleErr = joinErrors(p.ScaleErr, err)
	p.unscaled |= part
}

// setOut notes what the pass set out to do, in its second round too.
func (p *pass[O, C]) setOut(scale replicas.Scale[C]) {
	first := p.Scale
	if p.Scale = scale; !first.IsZero() {
		p.Scale.Delete, p.Scale.Discard = first.Delete, first.Discard
	}
}

// mayFillSlots reports whether free slots are to be filled although children that are in no
// wanted one could not be deleted, or may not be now.
func (p *pass[O, C]) mayFillSlots(ctx context.Context, planned replicas.Scale[C]) bool {
	isOld := p.state.behind && !p.HeldBack() // deletions of this pass have shown the view to be old
	return p.view.spec.Slots != nil && len(planned.Delete) > 0 && !slices.ContainsFunc(p.Deleted, p.rules.Active) && !isOld && ctx.Err() == nil
}

// missingSlots is what is to be created if nothing is deleted.
func (p *pass[O, C]) missingSlots() replicas.Scale[C] {
	spec := p.view.spec
	spec.MaxDeletions = new(int)
	scale, err := replicas.ScaleTo(p.Active, spec)
	p.fails(err)
	return scale
}

// notHeld leaves out what an earlier pass has put off, and asks for a pass when that is over. If
// the owner is in no namespace, it returns the children that are to be created, by their names.
func (p *pass[O, C]) notHeld(scale replicas.Scale[C]) (replicas.Scale[C], map[string]newborn[C]) {
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
	return p.creationsNotHeld(scale)
}

// within leaves out what there is no room for, and lets the pass make the calls of the rest.
func (p *pass[O, C]) within(owned []C, scale replicas.Scale[C]) replicas.Scale[C] {
	if scale.IsZero() {
		return scale
	}
	room, err := replicas.RoomOf(owned, p.view.spec)
	if err != nil {
		p.fails(err)
		return replicas.Scale[C]{}
	}
	scale = room.Clamp(scale)
	p.calls.allow(scale.Create, len(scale.Delete))
	return scale
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
	if limit := p.spec.MaxDeletions; scale.Deferred > 0 {
		reason := Burst
		if limit != nil && len(scale.Delete) >= *limit && scale.Create == 0 {
			reason = MaxDeletions
		}
		p.gate(reason, "", 0, nil)
	}
	if scale.Kept > 0 {
		p.gate(MissingFirst, "", 0, nil)
	}
	if scale.MustStay > 0 {
		p.gate(MustStay, "", 0, nil)
	}
}

// author asks Kind.BeforeScale, which may leave out and nothing else. After an error nothing is
// left.
func (p *pass[O, C]) author(ctx context.Context, active []C, scale replicas.Scale[C]) (replicas.Scale[C], error) {
	if scale.IsZero() {
		return scale, nil
	}
	if p.kind.BeforeScale == nil {
		inside.Scaling(ctx, p.Owner, active, scale)
		return scale, nil
	}
	less, again, err := p.beforeScale(ctx, active, scale)
	cut, wrong := p.agreed(scale, less, again)
	switch {
	case err != nil:
		p.gate(Author, "", again, err).waits = true
		p.refuse(err)
	case wrong != nil:
		err = wrong
		p.gate(Author, "", 0, p.failure("BeforeScale: %w", err))
	}
	if err != nil {
		return replicas.Scale[C]{}, p.failure("BeforeScale: %w", err)
	}
	if stops := leftOut(scale, cut); stops != 0 {
		p.gate(Author, "", again, nil).Stops = stops
	} else if again > 0 {
		p.comeBack(again)
	}
	return cut, nil
}

// beforeScale calls Kind.BeforeScale with lists that it may change. A child whose deletion was sent
// without an answer is not among the active ones that it gets.
func (p *pass[O, C]) beforeScale(ctx context.Context, active []C, scale replicas.Scale[C]) (replicas.Scale[C], time.Duration, error) {
	victims, doubted := idsOf(scale.Delete), p.state.known.Doubted()
	active = slices.DeleteFunc(slices.Clone(active), func(c C) bool {
		_, isDoubted := doubted[object.ID(c)]
		return isDoubted && !victims.Has(object.ID(c))
	})
	scale.Names, scale.Delete, scale.Discard = slices.Clone(scale.Names), slices.Clone(scale.Delete), slices.Clone(scale.Discard)
	return p.kind.BeforeScale(ctx, p.Owner, active, scale)
}

// agreed returns what there is in less of what was planned, or what is wrong with it.
func (p *pass[O, C]) agreed(planned, less replicas.Scale[C], again time.Duration) (cut replicas.Scale[C], err error) {
	names := sets.New(planned.Names...)
	switch {
	case again < 0:
		return cut, fmt.Errorf("%v until the next pass is negative", again)
	case !areLess(less.Delete, planned.Delete) || !areLess(less.Discard, planned.Discard):
		return cut, errors.New("a deletion was added, or is there twice")
	case less.Create < 0 || less.Create > planned.Create:
		return cut, fmt.Errorf("%d creations were made of %d", less.Create, planned.Create)
	case len(less.Names) > len(names.Intersection(sets.New(less.Names...))):
		return cut, fmt.Errorf("a name was added, or is there twice: %q were planned, and there are %q", planned.Names, less.Names)
	}
	cut = planned
	cut.Create = min(less.Create, len(less.Names))
	cut.Names = less.Names[:cut.Create]
	cut.Delete, cut.Discard = keep(planned.Delete, less.Delete), keep(planned.Discard, less.Discard)
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
	for _, c := range p.view.children {
		switch {
		case c.GetDeletionTimestamp() != nil || c.GetCreationTimestamp().Time.Before(r.First) || !p.controls(c) || !p.snapshot.Rules.MayCount(c):
		case p.rules.Active(c):
			living++
		default:
			failed++
		}
	}
	r.look(living, failed, p.Now)
	left, held := r.remaining(p.Now), min(r.Ended, scale.Create)
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

// noteRound notes what the pass has created, from a place in Created on.
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

// notOfRound takes a child that the pass has deleted out of its round.
func (p *pass[O, C]) notOfRound(c C) {
	r := &p.state.round
	if p.rules.Active(c) && !c.GetCreationTimestamp().Time.Before(r.First) {
		r.Made = max(r.Made-1, 0)
	}
}
