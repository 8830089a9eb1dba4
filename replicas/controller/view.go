// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// plan decides what to do, on the cached view with what is known laid over it. If that view
// is known to be old and something is to be done, or if it may lack what was done, the
// children are listed live first: that nothing is to be done may be chance.
func (p *pass[O, C]) plan(ctx context.Context) (replicas.Plan[C], error) {
	if err := p.readCache(ctx); err != nil {
		return replicas.Plan[C]{}, err
	}
	plan, err := p.manage(ctx)
	if err != nil || plan.Blocked.Reason != replicas.ViewIsStale && (!p.unmet || plan.Blocked.Reason != "") {
		return plan, err
	}
	if p.begins {
		reached, err := p.awaitCache(ctx)
		switch {
		case err != nil:
			return plan, err
		case reached:
			return p.manage(ctx)
		}
	}
	if err := p.readLive(ctx); err != nil {
		return plan, err
	}
	return p.manage(ctx)
}

// manage plans from the children as the pass has them, and notes what the status is
// made from if nothing else is done.
func (p *pass[O, C]) manage(ctx context.Context) (replicas.Plan[C], error) {
	if p.asked.Related == nil {
		p.spec.Related = func() []C { return p.related(ctx) }
	}
	p.spec.Names = func(prefix string) string { return prefix + suffix(p.opts.Random) }
	p.inFlight()
	plan, err := replicas.Manage(p.candidates(), p.spec)
	if err != nil {
		p.refuse(err)
		p.gate(SpecRefused, "", 0, err)
		return plan, err
	}
	p.Active, p.Terminating, p.Observed = plan.Claims.Owned, p.terminating(), true
	return plan, nil
}

// readCache reads the children from the cache.
func (p *pass[O, C]) readCache(ctx context.Context) (err error) {
	p.start = p.state.known.Start()
	read := &p.snapshot
	read.Version, read.Newest = p.cache.ChildrenVersion(), p.newest.get()
	if read.Children, err = p.cache.Children(ctx, p.Owner); err != nil {
		p.retryIn(serverDelay([]error{err}))
		return p.failure("listing children: %w", err)
	}
	read.Selector = p.spec.Selector
	read.Rules = ledger.RulesOf(p.Owner, p.kind.Owner.GroupKind(), p.spec.Selector, p.rules.Active) // a selector that is missing will be refused
	p.lookAtServer(ctx)
	view, err := p.state.known.View(p.start, p.snapshot, p.Now)
	if err != nil {
		return p.failure("the cache: %w", err)
	}
	p.children = view.Children
	p.wanted = p.wantedSlots()
	p.unmet = view.Unmet
	p.begins = p.isNewToTerm() && !view.Stale && view.Waits == 0
	switch {
	case view.Waits > 0:
		p.spec.Pending, p.spec.PendingFor = expectations.Waiting, view.Waits
	case view.Stale || p.begins:
		p.spec.Pending, p.spec.PendingFor = expectations.Expired, 0
	default:
		p.spec.Pending, p.spec.PendingFor = expectations.Satisfied, 0
	}
	return nil
}

// readLive reads the children from the server. Then the pass waits for nothing.
func (p *pass[O, C]) readLive(ctx context.Context) error {
	p.ViewWasStale = true
	live, err := p.listLive(ctx)
	if err != nil {
		p.unlisted(err)
		return p.failure("listing children live: %w", err)
	}
	p.children = live
	p.wanted = p.wantedSlots()
	p.looked()
	p.spec.Pending, p.spec.PendingFor = expectations.Satisfied, 0
	return nil
}

// unlisted notes that a live list failed without which nothing can be done.
func (p *pass[O, C]) unlisted(err error) {
	reason, wait := ListFailed, p.lists.retryIn(err)
	if held := (heldError{}); errors.As(err, &held) && held.busy {
		reason = ListsBusy
	}
	p.tell(reason, "Error listing: "+err.Error())
	p.gate(reason, "", wait, err)
}

// listLive lists what the owner's selector matches, and returns what is believed then.
func (p *pass[O, C]) listLive(ctx context.Context) ([]C, error) {
	start := p.state.known.Start()
	if _, err := p.allLive(ctx, start); err != nil {
		p.retryIn(p.lists.retryIn(err))
		return nil, err
	}
	view, err := p.state.known.View(p.start, p.snapshot, p.opts.Now())
	return view.Children, err
}

// terminating returns the owner's children that are being deleted and are not
// active.
func (p *pass[O, C]) terminating() (terminating []C) {
	owner, isTerminating := object.OwnerOf(p.Owner, p.kind.Owner.GroupKind()), terminatingBy(p.rules.Active)
	for _, c := range p.children {
		if isTerminating(c) && owner.Controls(c) && p.spec.Selector.Matches(labels.Set(c.GetLabels())) {
			terminating = append(terminating, c)
		}
	}
	return terminating
}

// related returns what children are ranked by.
func (p *pass[O, C]) related(ctx context.Context) (related []C) {
	related, p.RelatedErr = p.cache.Related(ctx, p.Owner)
	if p.RelatedErr != nil {
		p.tell(RelatedFailed, "Error listing related "+p.childResource.Resource+": "+p.RelatedErr.Error())
		p.gate(RelatedFailed, "", 0, p.RelatedErr)
		return nil
	}
	return related
}

// inFlight lets the spec have the calls that nothing has settled, and the names that no child
// can have now.
func (p *pass[O, C]) inFlight() {
	is := p.state.known.InFlight()
	p.spec.CreationsInFlight, p.spec.DeletionsInFlight = is.Creations, is.Deletions
	p.spec.Taken = append(p.taken(), is.Taken...)
}

func (p *pass[O, C]) activeOf(children []C) (active []C) {
	for _, c := range children {
		if p.rules.Active(c) {
			active = append(active, c)
		}
	}
	return active
}

// isNewToTerm reports whether nothing is known yet of the owner in this term but what the
// cache shows, which may be older than what an earlier process saw.
func (p *pass[O, C]) isNewToTerm() bool {
	if p.state.term != p.inTerm && p.term.children.reached(p.snapshot.Version) {
		p.looked()
	}
	return p.state.term != p.inTerm
}

// awaitCache waits until the cache has come as far as the server had after the term began,
// if both tell their versions, and if that does not take long. It returns errWait if the
// pass is to be requeued, and otherwise whether the cache has come so far.
func (p *pass[O, C]) awaitCache(ctx context.Context) (reached bool, err error) {
	versioner, ok := p.client.(Versioner)
	if !ok || p.snapshot.Version == "" {
		return false, nil
	}
	p.askChildrenVersion(ctx, versioner)
	if !p.isNewToTerm() {
		p.spec.Pending = expectations.Satisfied
		return true, nil
	}
	if wait := p.term.children.patience(p.opts.Now()); wait > 0 {
		p.gate(CacheBehind, "", wait, nil)
		return false, errWait
	}
	return false, nil
}

// lookAtServer asks the server in the first pass of a term how far it has come, if both it and
// the cache tell. Its answer proves a restore that a process on standby has missed.
func (p *pass[O, C]) lookAtServer(ctx context.Context) {
	versioner, ok := p.client.(Versioner)
	if _, asked := p.term.children.known(); ok && p.snapshot.Version != "" && asked.IsZero() {
		p.askChildrenVersion(ctx, versioner)
	}
}

// looked notes that the children were listed live in this term.
func (p *pass[O, C]) looked() { p.state.term = p.inTerm }
