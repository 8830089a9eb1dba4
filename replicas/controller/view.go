// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/status"
)

// A view holds the newest known state of the children.
type view[C Object] struct {
	// children holds the children in the cache, updated with newer facts from the ledger.
	children []C
	wanted   sets.Set[string] // see wantedSlots
	seen     ledger.View[C]
	state    viewState
	isLive   bool // a live list of this pass has shown the children
}

// An ownPlan is the plan for the owner of the pass, with what it was made from. If claims lead to another plan, it is
// that one. Holds and Kind.Prepare change none of it.
type ownPlan[C Object] struct {
	children []C
	facts    replicas.Facts[C]
	plan     replicas.Plan[C]
}

// A viewState says how far a view can be trusted.
type viewState uint8

const (
	trusted    viewState = iota
	waiting              // the cache does not show the pass's own calls yet: claims and the status go on, and nothing is listed
	stale                // the cache may be old: the children are listed live if the plan does something
	incomplete           // children may be missing, or gone: they are listed live in any case, because their number may be right by chance
)

// pending is the state of a view in the words of a Spec.
var pending = [...]expectations.State{
	trusted: expectations.Satisfied, waiting: expectations.Waiting, stale: expectations.Expired, incomplete: expectations.Expired,
}

// stateOf returns the state of a view. A new term makes it stale, because an earlier process may have seen more.
func viewStateOf[C Object](seen ledger.View[C], isNewToTerm bool) viewState {
	switch {
	case seen.Waits > 0:
		return waiting
	case seen.Unmet:
		return incomplete
	case seen.Stale, isNewToTerm:
		return stale
	}
	return trusted
}

// plan decides what to create, delete, adopt and release. The first decision is based on the cached children with
// newer facts from the ledger. If that view is not good enough, the children are listed live, and the decision is
// made again. The result ok reports whether the pass continues.
func (p *pass[O, C]) plan(ctx context.Context) (plan replicas.Plan[C], ok bool) {
	if !p.readCache(ctx) {
		return plan, false
	}
	plan, ok = p.manage(ctx)
	if !ok || !p.mustList(plan) {
		return plan, ok
	}
	if p.view.state == stale && p.isNewToTerm() {
		// A new leader has 2,000 owners to look at. Its cache is usually a few milliseconds behind, and one question to
		// the server shows that for all of them.
		if wait := p.awaitCache(ctx); wait > 0 {
			p.gate(CacheBehind, "", wait, nil)
			return plan, false
		}
		if p.judge(p.view.seen); p.view.state == trusted {
			return p.manage(ctx)
		}
	}
	if !p.readLive(ctx) {
		return plan, false
	}
	return p.manage(ctx)
}

// readCache reads the children from the cache.
func (p *pass[O, C]) readCache(ctx context.Context) (ok bool) {
	p.start = p.state.ledger.Start()
	read := &p.snapshot
	read.Version, read.Newest = p.cache.ChildrenVersion(), p.events.Newest()
	var err error
	if read.Children, err = p.cache.Children(ctx, p.Owner); err != nil {
		p.gate(CacheFailed, "", serverDelay([]error{err}), err)
		p.addError(p.failure("listing children: %w", err))
		return false
	}
	read.Selector = p.spec.Selector
	read.Rules = ledger.RulesOf(p.Owner, p.kind.Owner.GroupKind(), p.spec.Selector, p.rules.Active) // a missing selector is refused later
	if p.spec.NoAdoption {
		// The owner takes no orphans, so one with the name of a slot is a stranger there, and no place waits for it.
		mayCount := read.Rules.MayCount
		read.Rules.MayCount = func(c C) bool { return p.controls(c) && mayCount(c) }
	}
	p.lookAtServer(ctx)
	seen, err := p.state.ledger.View(p.start, p.snapshot, p.Now)
	if err != nil {
		p.addError(p.failure("the cache: %w", err))
		return false
	}
	p.facts.Now = p.Now
	p.facts.Names = p.names
	p.facts.Related = func() []C {
		if p.others == nil { // every plan of a pass ranks the children by the same objects
			related := p.related(ctx)
			p.others = &related
		}
		return *p.others
	}
	p.judge(seen)
	p.setChildren(seen.Children)
	return true
}

// lookAtServer asks the server for its resourceVersion in the first pass of a term, if the client and the
// cache support versions. The answer can prove that the server was restored from a backup while this
// process was on standby.
func (p *pass[O, C]) lookAtServer(ctx context.Context) {
	versioner, ok := p.client.(Versioner)
	if _, asked := p.term.children.known(); ok && p.snapshot.Version != "" && asked.IsZero() {
		p.askChildrenVersion(ctx, versioner)
	}
}

// related returns the objects that Cache.Related returns for the owner. These objects are needed to rank
// the owner's children. If Cache.Related fails, related returns nil.
func (p *pass[O, C]) related(ctx context.Context) (related []C) {
	related, err := p.cache.Related(ctx, p.Owner)
	if err != nil {
		p.sendEventOnce(RelatedFailed, "Error listing related "+p.childResource.Resource+": "+err.Error())
		p.gate(RelatedFailed, "", 0, err)
		return nil
	}
	return related
}

func (p *pass[O, C]) judge(seen ledger.View[C]) {
	p.view.seen, p.view.state = seen, viewStateOf(seen, p.isNewToTerm())
	p.facts.Pending, p.facts.PendingFor = pending[p.view.state], seen.Waits
}

// setChildren sets the children of the view, the calls in flight, and the names that new children cannot have.
func (p *pass[O, C]) setChildren(children []C) {
	p.view.children = children
	p.view.wanted = p.wantedSlots()
	calls := p.state.ledger.InFlight()
	p.facts.CreationsInFlight, p.facts.Taken = calls.Creations, append(p.takenSlots(), calls.Taken...)
	p.facts.DeletionsInFlight, p.facts.UpdatesInFlight = calls.Deletions, calls.Updates
}

// manage makes a plan for the view, and sets the fields of the Outcome that the status needs.
func (p *pass[O, C]) manage(ctx context.Context) (plan replicas.Plan[C], ok bool) {
	children := p.candidates()
	plan, err := replicas.Manage(children, withFacts(p.spec, p.facts))
	if err != nil {
		p.refuseSpec(ctx, err)
		return plan, false
	}
	p.own = ownPlan[C]{children, p.facts, plan}
	p.Active, p.Terminating, p.Observed = plan.Claims.Owned, p.terminating(), true
	p.Ended = p.ended()
	if reason, blocked := blocks[plan.Blocked.Reason]; blocked {
		p.gate(reason, "", 0, nil).Until = plan.Blocked.Until
	}
	return plan, true
}

// terminating returns the owner's children that are on their way out and do not count any more.
func (p *pass[O, C]) terminating() (terminating []C) {
	owner := object.OwnerOf(p.Owner, p.kind.Owner.GroupKind())
	for _, c := range p.view.children {
		if p.isTerminating(c) && owner.Controls(c) && p.spec.Selector.Matches(labels.Set(c.GetLabels())) {
			terminating = append(terminating, c)
		}
	}
	return terminating
}

func (p *pass[O, C]) isTerminating(c C) bool {
	if !p.rules.Leaving(c) || p.rules.Active(c) {
		return false
	}
	if pod, ok := any(c).(*corev1.Pod); ok && pod.DeletionTimestamp != nil {
		return status.IsPodTerminating(pod) // not one that has finished (T8)
	}
	return !p.rules.Ended(c)
}

// ended returns the owner's children that have ended, and that the pass should discard.
func (p *pass[O, C]) ended() []C {
	if p.spec.Rules.NoneEnds() {
		return nil
	}
	return filter(p.view.children, func(c C) bool {
		return p.spec.Rules.Ended(c) && p.controls(c) && p.snapshot.Rules.MayCount(c) && c.GetDeletionTimestamp() == nil
	})
}

// withFacts returns a Spec of the owner with what the pass knows. The Kind may have set Taken and Related.
func withFacts[C Object](spec replicas.Spec[C], facts replicas.Facts[C]) replicas.Spec[C] {
	facts.Taken = slices.Concat(spec.Facts.Taken, facts.Taken)
	if spec.Facts.Related != nil {
		facts.Related = spec.Facts.Related
	}
	spec.Facts = facts
	return spec
}

// mustList reports whether the children must be listed live before the plan is carried out.
func (p *pass[O, C]) mustList(plan replicas.Plan[C]) bool {
	switch plan.Blocked.Reason {
	case replicas.ViewIsStale:
		return true
	case "":
		// Prepare must not see an old view, even if the plan is empty. In a new term, it waits for the cache first.
		isUnsure := p.kind.Prepare != nil && p.view.state == stale && (p.view.seen.Stale || p.term.children.patience(p.opts.Now()) <= 0)
		return p.view.state == incomplete || isUnsure || p.listsFirst(plan.Scale)
	}
	return false
}

// listsFirst reports whether the plan must be made again from a live list, because an earlier deletion met a
// Conflict. The cache may be too late to choose from. But no list is made for deletions that a hold delays.
func (p *pass[O, C]) listsFirst(plan replicas.Scale[C]) bool {
	met := false
	for k := range p.state.holds {
		met = met || k.Reason == Conflict
	}
	lasts := func(reason GateReason, key, version string) bool {
		return p.state.holds[holdKey{reason, key}].remaining(p.Now, version) > 0
	}
	return met && !lasts(DeletionFailed, "", "") && !lasts(DeletionRetryAfter, "", "") &&
		slices.ContainsFunc(slices.Concat(plan.Delete, plan.Discard), func(v replicas.Deletion[C]) bool {
			return !lasts(Conflict, v.Object.GetName(), v.Object.GetResourceVersion())
		})
}

// awaitCache asks the server for its resourceVersion. It returns the delay before the next pass checks
// whether the cache has reached this version. The result is 0 if the cache has reached the version or takes
// too long, or if the client or the cache does not support versions.
func (p *pass[O, C]) awaitCache(ctx context.Context) time.Duration {
	versioner, ok := p.client.(Versioner)
	if !ok || p.snapshot.Version == "" {
		return 0
	}
	p.askChildrenVersion(ctx, versioner)
	if !p.isNewToTerm() {
		return 0
	}
	return p.term.children.patience(p.opts.Now())
}

// isNewToTerm reports whether the owner's children still have to be checked in this term. The cache may
// then be older than what an earlier process saw.
func (p *pass[O, C]) isNewToTerm() bool {
	if p.state.childrenTerm != p.inTerm && p.term.children.reached(p.snapshot.Version) {
		p.looked()
	}
	return p.state.childrenTerm != p.inTerm
}

// The method looked is called when a live list, or a cache that is new enough, has shown all children in this
// term. It records the term in the owner's state.
func (p *pass[O, C]) looked() { p.state.childrenTerm = p.inTerm }

// readLive reads the children from the server, so that the pass no longer waits for the cache. The result
// ok reports whether the list succeeded. If no list is made, the pass does not fail, because a later pass lists.
func (p *pass[O, C]) readLive(ctx context.Context) (ok bool) {
	if p.held(ListFailed, "", "", "") {
		return false
	}
	live, err := p.listLive(ctx)
	switch {
	case errors.Is(err, errListsBusy):
		p.sendEventOnce(ListsBusy, "Error listing: "+err.Error())
		p.gate(ListsBusy, "", p.spread(ListsBusy.row().shortest), err)
		return false
	case err != nil && ctx.Err() == nil:
		p.sendEventOnce(ListFailed, "Error listing: "+err.Error())
		p.holdCalls(ListFailed, "", "", err)
	}
	if err != nil {
		p.addError(p.failure("listing children live: %w", err))
		return false
	}
	p.state.holds.end("", ListFailed)
	p.looked()
	p.judge(ledger.View[C]{})
	p.setChildren(live)
	p.view.isLive = true
	return true
}

// spread adds up to a half to a delay, so that owners that met at the lists do not meet again.
func (p *pass[O, C]) spread(d time.Duration) time.Duration {
	return d + time.Duration(p.opts.Random(int(d/2/time.Millisecond)+1))*time.Millisecond
}

// listLive lists the objects on the server that match the owner's selector, and returns the children of
// the resulting view.
func (p *pass[O, C]) listLive(ctx context.Context) ([]C, error) {
	start := p.state.ledger.Start()
	if _, err := p.allLive(ctx, start); err != nil {
		return nil, err
	}
	view, err := p.state.ledger.View(p.start, p.snapshot, p.opts.Now())
	return view.Children, err
}

// A term is a period during which only this process is active, for example because it holds a lease. When a
// term begins, the caches may be older than what an earlier process saw. The zero value is the first term,
// before its first pass.
type term struct {
	mu     sync.Mutex
	before int // the number of this process's terms that have ended
	// The two versions are never compared with each other, because owners and children may be stored
	// separately.
	owners, children serverVersion
}

// next ends the current term. Passes that begin later belong to a new term.
func (t *term) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before++
	t.owners.forget()
	t.children.forget()
}

// number returns the number of the current term, counted from 1.
func (t *term) number() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.before + 1
}

// A serverVersion is the resourceVersion that the server had for one resource after the term began.
type serverVersion struct {
	mu        sync.Mutex
	version   string    // "" if not known
	asked     time.Time // when a pass first asked for the version
	last      time.Time // when the server was last asked
	asking    bool
	forgotten int // how often forget was called
}

// askFirst asks the server for the version before any pass needs it. It then resets v.asked to zero,
// because no pass is waiting for a cache yet.
func (v *serverVersion) askFirst(now func() time.Time, version func() (string, error)) {
	v.ask(now, version)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = time.Time{}
}

// forget drops the version when a term ends.
func (v *serverVersion) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forgotten++
	v.version, v.asked, v.last = "", time.Time{}, time.Time{}
}

// known returns the version, or "" if the server has not returned it yet. The second result is the time
// at which a pass first asked for the version.
func (v *serverVersion) known() (version string, asked time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.version, v.asked
}

// reached reports whether a cache with the given version shows everything that existed when the term
// began.
func (v *serverVersion) reached(version string) bool {
	known, _ := v.known()
	return resourceversion.Reached(version, known)
}

// patience returns the time that a pass waits before it checks the cache again. If passes have already
// waited for the longest time in the row of CacheBehind, the result is 0.
func (v *serverVersion) patience(now time.Time) time.Duration {
	_, asked := v.known()
	row, waited := CacheBehind.row(), now.Sub(asked)
	if waited < 0 || waited >= row.longest {
		return 0
	}
	return min(max(waited, row.shortest), row.longest-waited)
}

// ask requests the version from the server. No request is sent if the version is known, if another pass is
// already requesting it, or if the last request was less than a second ago. The result is the version, or
// "" if the version is still unknown.
func (v *serverVersion) ask(now func() time.Time, version func() (string, error)) string {
	v.mu.Lock()
	at := now()
	if v.asked.IsZero() {
		v.asked = at
	}
	if v.version != "" || v.asking || !v.last.IsZero() && at.Sub(v.last) < time.Second && !at.Before(v.last) {
		defer v.mu.Unlock()
		return v.version
	}
	forgotten := v.forgotten
	v.asking, v.last = true, at
	v.mu.Unlock()
	answer, err := "", errors.New("controller: a panic")
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.asking = false
		if err == nil && forgotten == v.forgotten {
			v.version = answer
		}
	}()
	if answer, err = version(); err != nil {
		return ""
	}
	return answer
}

// wantedSlots returns the names of the wanted slots that have a child or are on hold, without those of a group that has
// more than replicas.MaxSlots, because such a spec is refused later.
func (p *pass[O, C]) wantedSlots() sets.Set[string] {
	if !p.hasNamedSlots() {
		return nil
	}
	wanted, known := sets.New[string](), sets.New[string]()
	for k := range p.state.holds {
		if k.Reason == NameTaken {
			known.Insert(k.Key)
		}
	}
	for _, c := range p.view.children {
		if !object.IsNil(c) {
			known.Insert(c.GetName())
		}
	}
	for _, g := range groupsIn(p.spec) {
		if g.Slots == nil || g.Replicas > replicas.MaxSlots {
			continue
		}
		for i := 0; i < int(g.Replicas) && len(wanted) < len(known); i++ {
			if name := g.Slots(i); known.Has(name) {
				wanted.Insert(name)
			}
		}
	}
	return wanted
}

// candidates returns the children on which the plan is based. If the spec has slots, candidates leaves out
// objects that cannot become the owner's children. These objects may use the name of a slot, and no event
// reports when the name is free again. The pass therefore tries to create the slot's child, and puts the
// slot on hold after a failure.
func (p *pass[O, C]) candidates() []C {
	if !p.hasNamedSlots() {
		return p.view.children
	}
	return slices.DeleteFunc(slices.Clone(p.view.children), func(c C) bool { return !p.controls(c) && !p.snapshot.Rules.MayCount(c) })
}

// takenSlots returns the slots that no new child can fill: those of the candidates, and those on hold.
func (p *pass[O, C]) takenSlots() (names []string) {
	if !p.hasNamedSlots() {
		return nil
	}
	for _, c := range p.candidates() {
		names = append(names, c.GetName())
	}
	filled := sets.New(names...)
	for k := range p.state.holds {
		switch {
		case k.Reason != NameTaken:
		case filled.Has(k.Key):
			// A user gave the stranger our labels, so it is a child now. The gate would stand for up to a minute more.
			delete(p.state.holds, k)
		case !p.view.wanted.Has(k.Key):
			delete(p.state.holds, k)
		case p.held(NameTaken, k.Key, k.Key, ""):
			names = append(names, k.Key)
		}
	}
	return names
}
