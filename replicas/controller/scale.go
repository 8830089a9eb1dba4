// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/replicakit/replicakit/replicas"
)

// scale creates or deletes what is missing or in surplus.
func (p *pass[O, C]) scale(ctx context.Context, scale replicas.Scale[C]) error {
	if p.Waiting && scale.IsZero() {
		return nil
	}
	scale, err := p.doubtedFirst(ctx, scale)
	if err != nil {
		return err
	}
	if scale.Create == 0 {
		p.lookForUnwanted(ctx)
	}
	if scale.IsZero() {
		p.state.nothingLeft()
		return nil
	}
	err = p.carryOut(ctx, scale)
	vetoFailed := err != nil && p.ScaleErr == nil
	if len(scale.Delete) == 0 || len(p.Deleted) > 0 || vetoFailed || p.state.behind && !p.BackedOff {
		return err
	}
	return joinErrors(err, p.createMissing(ctx))
}

// createMissing creates what is missing although children that must go cannot, or
// may not now.
func (p *pass[O, C]) createMissing(ctx context.Context) error {
	if len(p.Active)+p.spec.PendingAdoptions >= int(p.spec.Replicas) || ctx.Err() != nil {
		return nil
	}
	spec := p.spec
	spec.MaxDeletions, spec.Names = new(int), p.namer()
	scale, err := replicas.ScaleTo(p.Active, spec)
	if err != nil || scale.IsZero() {
		return err
	}
	return p.carryOut(ctx, scale)
}

// carryOut creates or deletes, unless that is held or vetoed.
func (p *pass[O, C]) carryOut(ctx context.Context, scale replicas.Scale[C]) (err error) {
	scale, newborns := p.held(scale)
	if scale.IsZero() {
		return nil
	}
	if scale, err = p.beforeScale(ctx, p.Active, scale); err != nil {
		return err
	}
	if may, err := p.ownerWantsIt(ctx, scale); !may {
		return err
	}
	tried := p.Scale.Delete // if this is createMissing
	if p.Scale = scale; len(tried) > 0 {
		p.Scale.Delete = tried
	}
	switch {
	case scale.Create > 0:
		return p.create(ctx, scale, newborns)
	case len(scale.Delete) > 0:
		defer p.noteDeleted()
		return p.delete(ctx, scale.Delete)
	}
	return nil
}

// ownerWantsIt reports whether the owner on the server, as far as it has to be asked,
// still wants what the pass goes by.
func (p *pass[O, C]) ownerWantsIt(ctx context.Context, scale replicas.Scale[C]) (bool, error) {
	switch {
	case len(scale.Delete) > 0:
		return p.mayDelete(ctx)
	case scale.Create > 0:
		return p.mayCreate(ctx), nil
	}
	return true, nil
}

// held leaves out what must wait, and asks for a requeue when it need not.
func (p *pass[O, C]) held(scale replicas.Scale[C]) (replicas.Scale[C], []newborn[C]) {
	if p.ownerOld {
		p.waitForOwner()
		return replicas.Scale[C]{}, nil
	}
	if scale.Create > 0 {
		if scale = p.notInVain(scale); scale.Create == 0 {
			return scale, nil
		}
		return p.notHeld(scale)
	}
	if p.waits(p.state.deletions.remaining(p.Now, 0)) {
		return replicas.Scale[C]{}, nil
	}
	return scale, nil
}
