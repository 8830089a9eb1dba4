// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
)

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
