// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
)

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
