// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

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
