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
	"github.com/replicakit/replicakit/replicas/ledger"
)

// doubtedFirst chooses those first whose deletion was sent without an answer. Each of
// them counts as gone, even if it must stay by now: if there would be too few then, only
// those go that must.
func (p *pass[O, C]) doubtedFirst(ctx context.Context, scale replicas.Scale[C]) (replicas.Scale[C], error) {
	limit, sent := len(scale.Delete), p.state.known.Doubted()
	if limit == 0 || len(sent) == 0 {
		return scale, nil
	}
	doubted := p.doubted(sent)
	if active := len(p.Active); active-len(doubted) < int(p.spec.Replicas) {
		if err := p.lookForDoubted(ctx, doubted, sent); err != nil {
			return scale, err
		}
		if p.spec.Slots != nil && len(p.Active) < active { // the next pass chooses among the slots that are left
			p.gate(DeletionInFlight, "", 1, nil)
			return replicas.Scale[C]{Discard: scale.Discard}, nil
		}
		doubted = p.doubted(p.state.known.Doubted())
	}
	spec := p.spec
	mustGo, mustStay := p.mustGo, func(C) bool { return false }
	if spec.Rules.MustStay != nil {
		mustStay = spec.Rules.MustStay
	}
	tooFew := len(p.Active)-len(doubted) < int(spec.Replicas) || spec.Slots != nil
	chosen := sets.New[types.UID]()
	for _, c := range doubted {
		if mustStay(c) || tooFew && !mustGo(c) {
			limit--
		} else {
			chosen.Insert(object.ID(c))
		}
	}
	limit = max(limit, 0)
	spec.MaxDeletions = &limit // as many as before
	others := limit > len(chosen) && spec.Slots == nil
	spec.Rules.MustGo = func(c C) bool { return chosen.Has(object.ID(c)) || mustGo(c) }
	spec.Rules.MustStay = func(c C) bool {
		return mustStay(c) || !chosen.Has(object.ID(c)) && (!others || tooFew && !mustGo(c))
	}
	less, err := replicas.ScaleTo(p.Active, spec)
	less.Discard = scale.Discard
	if spec.Slots != nil && limit > 0 { // the others as they are planned: the highest slot first
		less.Create, less.Names = 0, nil
		others := slices.DeleteFunc(slices.Clone(scale.Delete), func(v replicas.Deletion[C]) bool { return chosen.Has(object.ID(v.Object)) })
		less.Delete = append(less.Delete, others[:min(len(others), limit-len(less.Delete))]...)
	}
	if len(less.Delete) < len(scale.Delete) {
		for _, c := range doubted {
			p.gate(DeletionInFlight, c.GetName(), max(ledger.Landing-p.Now.Sub(sent[object.ID(c)])+1, 1), nil)
		}
	}
	return less, err
}

// doubted are the active children whose deletion was sent without an answer.
func (p *pass[O, C]) doubted(sent map[types.UID]time.Time) (doubted []C) {
	for _, c := range p.Active {
		if _, ok := sent[object.ID(c)]; ok {
			doubted = append(doubted, c)
		}
	}
	return doubted
}

// lookForDoubted looks for children whose deletion was sent so long ago that it can no longer
// take effect. Those that are there and the owner's stay. The others no longer count.
func (p *pass[O, C]) lookForDoubted(ctx context.Context, doubted []C, sent map[types.UID]time.Time) error {
	late := slices.DeleteFunc(slices.Clone(doubted), func(c C) bool {
		return p.Now.Sub(sent[object.ID(c)]) <= ledger.Landing
	})
	if len(late) == 0 {
		return nil
	}
	look := p.looks(ctx, len(late))
	for _, c := range late {
		found, there, err := look.find(ctx, nameOf(c))
		if p.failedLook(ctx, err) {
			return p.failure("looking for %q, whose deletion had no answer: %w", c.GetName(), err)
		}
		p.state.known.Sure(object.ID(c))
		switch {
		case !there || object.ID(found) != object.ID(c):
			p.lacks(look, object.ID(c))
		case p.isReplica(found):
			continue
		default: // it is going, or is not the owner's any more
			p.believe(look.start, found)
		}
		p.Active = slices.DeleteFunc(slices.Clone(p.Active), func(a C) bool { return object.ID(a) == object.ID(c) })
	}
	return nil
}

// isReplica reports whether a child that was found counts for the owner.
func (p *pass[O, C]) isReplica(c C) bool {
	is, ours := p.snapshot.Rules.Bearer(c)
	return is == ledger.Replica && ours && c.GetDeletionTimestamp() == nil
}
