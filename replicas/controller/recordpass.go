// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
)

// record makes a pass go through a recorder, if somebody wants recordings.
func (p *pass[O, C]) record() {
	if p.opts.Record == nil {
		return
	}
	r := &recorder[O, C]{Client: p.client, Cache: p.cache, now: p.opts.Now}
	r.is.Owner, r.is.Kind, r.is.ChildKind, r.is.Began = p.Name, p.kind.Owner, p.kind.Child, p.Now
	p.recorder, p.cache, p.client = r, r, r
	p.owners.takeEvents(p.Name, &r.events)
	versioner, isVersioner := r.Client.(Versioner)
	if isVersioner {
		p.client = versionRecorder[O, C]{r, versioner}
	}
	r.is.settings = recordedSettings{p.opts.MaxParallel, p.opts.ExpectationsTimeout, p.opts.BackOffFailed, isVersioner}
	live := p.list
	p.list = func(ctx context.Context, namespace string, matching labels.Selector) (List[C], error) {
		list, err := live(ctx, namespace, matching)
		r.note(Call{Verb: verbList, Namespace: namespace, Name: matching.String(), answer: data{is: list}}, err)
		return list, err
	}
	random := p.random
	p.random = func(n int) int {
		number := random(n)
		r.is.random = append(r.is.random, number)
		return number
	}
}

// recordBefore notes what is known of the owner, before the pass changes it.
func (p *pass[O, C]) recordBefore(stale expectations.Stale) {
	if p.recorder == nil {
		return
	}
	m := &p.recorder.is.known
	m.Distrusted, m.EventsCame = stale != (expectations.Stale{}), p.newest.any()
	m.StatusCounts, m.Stripped, m.Compared = p.statusCounts.Load(), p.whole.stripped.Load(), p.whole.compared.Load()
	m.TermBegan = p.termBegan
	owners, _ := p.term.owners.known()
	children, asked := p.term.children.known()
	m.TermAsked, m.TermVersions = asked, map[string]string{verbServerOwnersVersion: owners, verbServerChildrenVersion: children}
	if state, remaining := p.pending.State(p.key); state != expectations.Satisfied {
		is, _ := p.pending.Get(p.key)
		m.Pending = recordedPending{slices.Clone(is.Creating), slices.Clone(is.Deleting), is.Creations, is.Deletions, remaining}
	}
	s := p.state
	if s == nil {
		return
	}
	m.Is, m.Ledger, m.Generation = true, data{is: s.known.Clone()}, s.generation
	if is := s.known.Owner(); is.Gone || is.Is != nil {
		m.OwnerIs, m.OwnerGone, m.OwnerVersion = data{is: is.Is}, is.Gone, is.Version
	}
	m.Owner, m.Holds, m.Behind, m.Round = s.owner, cloned(s.holds), s.behind, s.round
	m.Active, m.ChildLeft, m.Aside = s.active, s.childLeft, cloned(s.aside)
	m.LookedInTerm, m.OwnerInTerm = s.term == p.inTerm, s.ownerTerm == p.inTerm
	if s.status != nil {
		m.StatusSent, m.StatusStored = data{is: s.status.sent}, data{is: s.status.stored}
	}
	s.ready.mu.Lock()
	m.Ready = maps.Clone(s.ready.at)
	s.ready.mu.Unlock()
}

// recordVersion notes how far the server had come with a resource, as the pass knew it.
// Another pass may have learned that since this one began.
func (p *pass[O, C]) recordVersion(verb, version string) {
	if p.recorder != nil {
		p.recorder.is.known.TermVersions[verb] = version
	}
}

// recordPlan notes what the pass planned from.
func (p *pass[O, C]) recordPlan() {
	if p.recorder == nil {
		return
	}
	is := &p.recorder.is
	is.Desired, is.cache.Newest, is.Believed = p.Desired, p.snapshot.Newest, nil
	for _, c := range p.Active {
		is.Believed = append(is.Believed, c.GetName())
	}
}

// hand hands the recording out, if the pass looked at its owner.
func (p *pass[O, C]) hand(ctx context.Context) {
	if p.recorder == nil || object.IsNil(p.Owner) {
		return
	}
	is := p.recorder.is
	is.events = p.recorder.events.events
	is.interrupted = ctx.Err() != nil
	if is.Took, is.RequeueAfter = p.Took, p.RequeueAfter; p.Err != nil {
		is.Err = p.Err.Error()
	}
	slices.SortStableFunc(is.Calls, func(a, b Call) int { return a.Ended.Compare(b.Ended) })
	p.opts.Record(is)
}

// cloned copies a map and what its pointers point to.
func cloned[M ~map[K]*V, K comparable, V any](m M) M {
	if m == nil {
		return nil
	}
	clone := make(M, len(m))
	for k, v := range m {
		is := *v
		clone[k] = &is
	}
	return clone
}
