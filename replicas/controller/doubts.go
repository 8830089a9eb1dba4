// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
)

// doubts are the children whose deletion was sent without an answer, by their ids. A
// doubt ends when the child is gone, or is read at another resourceVersion than the call
// carried, or is read so late that the call can take effect no more. Neither a clock nor
// what becomes of a later call ends it. The zero value is empty.
type doubts map[types.UID]doubt

type doubt struct {
	version string    // that the call carried, "" if none
	sent    time.Time // the last call
}

func (d *doubts) add(id types.UID, version string, now time.Time) {
	if *d == nil {
		*d = doubts{}
	}
	if was, ok := (*d)[id]; ok && was.version != version {
		version = "" // of two calls each may take effect
	}
	(*d)[id] = doubt{version, now}
}

func (d doubts) end(id types.UID) { delete(d, id) }

func (d doubts) has(id types.UID) bool {
	_, ok := d[id]
	return ok
}

// seen ends the doubts about children that are gone or have changed.
func seen[C Object](d doubts, children []C) {
	if len(d) == 0 {
		return
	}
	there := sets.New[types.UID]()
	for _, c := range children {
		id := object.ID(c)
		was, ok := d[id]
		if ok && c.GetDeletionTimestamp() == nil && (was.version == "" || was.version == c.GetResourceVersion()) {
			there.Insert(id)
		}
	}
	maps.DeleteFunc(d, func(id types.UID, _ doubt) bool { return !there.Has(id) })
}

// doubtedFirst chooses those first whose deletion was sent without an answer. Each of
// them counts as gone, even if it must stay by now: if there would be too few then, only
// those go that must.
func (p *pass[O, C]) doubtedFirst(ctx context.Context, scale replicas.ScaleOf[C]) (replicas.ScaleOf[C], error) {
	seen(p.state.doubted, p.children)
	limit := len(scale.Delete)
	if limit == 0 || len(p.state.doubted) == 0 {
		return scale, nil
	}
	doubted := p.doubted()
	if len(p.Active)-len(doubted) < int(p.spec.Replicas) {
		if err := p.lookForDoubted(ctx, doubted); err != nil {
			return scale, err
		}
		doubted = p.doubted()
	}
	spec := p.spec
	mustGo, mustStay := func(C) bool { return false }, func(C) bool { return false }
	if spec.Rules.MustGo != nil {
		mustGo = spec.Rules.MustGo
	}
	if spec.Rules.MustStay != nil {
		mustStay = spec.Rules.MustStay
	}
	tooFew := len(p.Active)-len(doubted) < int(spec.Replicas)
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
	others := limit > len(chosen)
	spec.Rules.MustGo = func(c C) bool { return chosen.Has(object.ID(c)) || mustGo(c) }
	spec.Rules.MustStay = func(c C) bool {
		return mustStay(c) || !chosen.Has(object.ID(c)) && (!others || tooFew && !mustGo(c))
	}
	less, err := replicas.ScaleTo(p.Active, spec)
	if len(less.Delete) < len(scale.Delete) {
		p.Waiting = true
		for _, c := range doubted {
			p.comeBack(unresolvedKept - p.Now.Sub(p.state.doubted[object.ID(c)].sent) + 1)
		}
	}
	return less, err
}

// doubted are the active children whose deletion was sent without an answer.
func (p *pass[O, C]) doubted() (doubted []C) {
	for _, c := range p.Active {
		if p.state.doubted.has(object.ID(c)) {
			doubted = append(doubted, c)
		}
	}
	return doubted
}

// lookForDoubted looks for children whose deletion was sent so long ago that it can take
// effect no more: those that are there stay, and those that are not count no more.
func (p *pass[O, C]) lookForDoubted(ctx context.Context, doubted []C) error {
	late := slices.DeleteFunc(slices.Clone(doubted), func(c C) bool {
		return p.Now.Sub(p.state.doubted[object.ID(c)].sent) <= unresolvedKept
	})
	if len(late) == 0 {
		return nil
	}
	look := p.looks(ctx, len(late))
	for _, c := range late {
		found, there, err := look(ctx, nameOf(c))
		if err != nil {
			return p.failure("looking for %q, whose deletion had no answer: %w", c.GetName(), err)
		}
		p.state.doubted.end(object.ID(c))
		if !there || object.ID(found) != object.ID(c) {
			p.state.proven.gone(object.ID(c), p.opts.Now())
			p.Active = slices.DeleteFunc(slices.Clone(p.Active), func(a C) bool { return object.ID(a) == object.ID(c) })
		}
	}
	return nil
}
