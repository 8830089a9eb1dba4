// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
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
	if scale = p.held(scale); scale.IsZero() {
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
		return p.create(ctx, scale)
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
func (p *pass[O, C]) held(scale replicas.Scale[C]) replicas.Scale[C] {
	if p.ownerOld {
		p.waitForOwner()
		return replicas.Scale[C]{}
	}
	if scale.Create > 0 {
		if scale = p.notInVain(scale); scale.Create == 0 {
			return scale
		}
		return p.notHeld(scale)
	}
	if p.waits(p.state.deletions.remaining(p.Now, 0)) {
		return replicas.Scale[C]{}
	}
	return scale
}

// waits reports whether a hold lasts, and asks for a requeue when it is over.
func (p *pass[O, C]) waits(hold time.Duration) bool {
	if hold <= 0 {
		return false
	}
	p.BackedOff, p.Waiting = true, true
	p.comeBack(hold)
	return true
}

// beforeScale asks Kind.BeforeScale, which may leave out and nothing else. To it a child
// is gone whose deletion was sent without an answer.
func (p *pass[O, C]) beforeScale(ctx context.Context, active []C, scale replicas.Scale[C]) (replicas.Scale[C], error) {
	if p.kind.BeforeScale == nil {
		return scale, nil
	}
	given := scale // which may be cut down in place
	given.Names, given.Delete = slices.Clone(scale.Names), slices.Clone(scale.Delete)
	victims := sets.New[types.UID]()
	for _, v := range scale.Delete {
		victims.Insert(object.ID(v.Object))
	}
	doubted := p.state.known.Doubted()
	active = slices.DeleteFunc(slices.Clone(active), func(c C) bool {
		_, isDoubted := doubted[object.ID(c)]
		return isDoubted && !victims.Has(object.ID(c))
	})
	less, again, err := p.kind.BeforeScale(ctx, p.Owner, active, given)
	switch {
	case err != nil:
		p.Waiting = true
		p.retryAfter = max(p.retryAfter, again)
		p.refuse(err)
		return scale, p.failure("BeforeScale: %w", err)
	case again < 0:
		return scale, p.failure("BeforeScale: %v until the next pass is negative", again)
	case again > 0:
		p.comeBack(again)
	}
	isNil := object.NilOf[C]()
	for _, v := range less.Delete {
		if isNil(v.Object) || !victims.Has(object.ID(v.Object)) {
			return scale, p.failure("BeforeScale: a deletion was added, or is there twice")
		}
		victims.Delete(object.ID(v.Object))
	}
	if less.Create < 0 || less.Create > scale.Create {
		return scale, p.failure("BeforeScale: %d creations were made of %d", less.Create, scale.Create)
	}
	scale.Create, scale.Names = less.Create, scale.Names[:less.Create]
	scale.Delete = keep(scale.Delete, less.Delete)
	return scale, nil
}

// keep returns those of the deletions that are in less, as they were planned.
func keep[C Object](planned, less []replicas.Deletion[C]) []replicas.Deletion[C] {
	wanted := sets.New[types.UID]()
	for _, v := range less {
		wanted.Insert(object.ID(v.Object))
	}
	return slices.DeleteFunc(slices.Clone(planned), func(v replicas.Deletion[C]) bool { return !wanted.Has(object.ID(v.Object)) })
}
