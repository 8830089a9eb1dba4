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
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/status"
)

// A view holds the newest known state of the children.
type view[C Object] struct {
	// children holds the children in the cache, updated with newer facts from the ledger.
	children []C
	wanted   sets.Set[string] // see wantedSlots; nil if slots are not the names of children
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
	waiting              // the cache does not show earlier calls yet: claims and the status go on, and nothing is listed
	stale                // the cache may be old: the children are listed live if the plan does something
	incomplete           // children may be missing, or gone: they are listed live in any case
)

// pending is the state of a view in the words of a Spec.
var pending = [...]expectations.State{
	trusted: expectations.Satisfied, waiting: expectations.Waiting, stale: expectations.Expired, incomplete: expectations.Expired,
}

func viewStateOf[C Object](seen ledger.View[C], isNewToTerm bool) viewState {
	switch {
	case seen.Waits > 0:
		return waiting
	case seen.Unmet:
		// For five minutes the cache lacks web-bbbbb, which was created here, and has web-c of someone else. So three of
		// three is right by chance, and the fourth pod would stay for ever.
		return incomplete
	case seen.Stale, isNewToTerm:
		// The former leader created web-bbbbb, and the cache of this process does not show it yet. A second one would be made.
		return stale
	}
	return trusted
}

// plan decides what to create, change, delete, adopt and release. The result ok reports whether the pass continues.
func (p *pass[O, C]) plan(ctx context.Context) (plan replicas.Plan[C], ok bool) {
	if !p.readCache(ctx) {
		return plan, false
	}
	// A plan from the cache comes first, and costs no call. Most passes have nothing to do, and need nothing newer.
	plan, ok = p.manage(ctx)
	if !ok || !p.mustList(plan) {
		return plan, ok
	}
	if p.view.state == stale && p.isNewToTerm() {
		// A new leader has 2,000 owners to look at. Its cache is usually a few milliseconds behind, and one question to the
		// server shows that for all of them. So it is asked before each owner has a list of its own.
		if wait := p.awaitCache(ctx); wait > 0 {
			p.gate(CacheBehind, "", wait, nil)
			return plan, false
		}
		if p.judge(p.view.seen); p.view.state == trusted {
			return p.manage(ctx)
		}
	}
	// The watch hangs, and after five minutes the cache lacks what was created. Only a list shows what is there.
	if !p.readLive(ctx) {
		return plan, false
	}
	return p.manage(ctx)
}

// readCache reads the children from the cache, and reports whether that succeeded.
func (p *pass[O, C]) readCache(ctx context.Context) (ok bool) {
	// The moment and the version come before the children. Otherwise, what arrives while they are read would seem to be
	// in a cache that lacks it.
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

// lookAtServer asks the server for its resourceVersion in the first pass of a term.
func (p *pass[O, C]) lookAtServer(ctx context.Context) {
	// The server was restored from a backup while this process was on standby. Then its version is older than the
	// cache, which proves the restore before the first change.
	versioner, ok := p.client.(Versioner)
	if _, asked := p.term.children.known(); ok && p.snapshot.Version != "" && asked.IsZero() {
		p.askChildrenVersion(ctx, versioner)
	}
}

// related returns the objects by which the owner's children are ranked.
func (p *pass[O, C]) related(ctx context.Context) (related []C) {
	related, err := p.cache.Related(ctx, p.Owner)
	if err != nil { // costs the ranking, and not the pass (L4)
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
	p.view.wanted = p.wantedSlots() // of these children, and for takenSlots
	calls := p.state.ledger.InFlight()
	p.facts.CreationsInFlight, p.facts.Taken = calls.Creations, append(p.takenSlots(), calls.Taken...)
	p.facts.DeletionsInFlight, p.facts.UpdatesInFlight = calls.Deletions, calls.Updates
}

// manage makes a plan for the view.
func (p *pass[O, C]) manage(ctx context.Context) (plan replicas.Plan[C], ok bool) {
	children := p.candidates()
	plan, err := replicas.Manage(children, withFacts(p.spec, p.facts))
	if err != nil {
		p.refuseSpec(ctx, err)
		return plan, false
	}
	p.own = ownPlan[C]{children, p.facts, plan}
	// Also for a plan that is blocked, because the status is written in any case.
	p.Active, p.Terminating, p.Observed = plan.Claims.Owned, p.terminating(), true
	p.Ended = p.ended()
	if reason, blocked := blocks[plan.Blocked.Reason]; blocked {
		p.gate(reason, "", 0, nil).Until = plan.Blocked.Until
	}
	return plan, true
}

// terminating returns the owner's children that are on their way out and no longer count.
func (p *pass[O, C]) terminating() (terminating []C) {
	for _, c := range p.view.children {
		if p.isTerminating(c) && p.controls(c) && p.spec.Selector.Matches(labels.Set(c.GetLabels())) {
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

// ended returns the owner's children that have ended.
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

// mustList reports whether the children must be listed before the plan is carried out.
func (p *pass[O, C]) mustList(plan replicas.Plan[C]) bool {
	switch plan.Blocked.Reason {
	case replicas.ViewIsStale:
		return true
	case "":
		// A plan from an old view is empty, and Prepare would call off a drain that goes on. So an empty plan needs a list,
		// too, but a new term waits for its cache first.
		isUnsure := p.kind.Prepare != nil && p.view.state == stale && (p.view.seen.Stale || p.term.children.patience(p.opts.Now()) <= 0)
		return p.view.state == incomplete || isUnsure || p.listsFirst(plan.Scale)
	}
	return false
}

// listsFirst reports whether a deletion of the plan needs a list, because an earlier one met a Conflict.
func (p *pass[O, C]) listsFirst(plan replicas.Scale[C]) bool {
	// web-d had changed since the cache showed it, and the others may have, too, so the next deletion would meet a Conflict
	// as well. But while all deletions of the plan are held, no event of a pod is worth a list.
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

// awaitCache asks the server for its resourceVersion, and returns how long to wait before the next look at the cache. It
// returns 0 if the cache has come as far or was waited for long enough, or if the client or the cache has no versions.
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

// isNewToTerm reports whether an earlier process may have seen more of the children than this term has.
func (p *pass[O, C]) isNewToTerm() bool {
	if p.state.childrenTerm != p.inTerm && p.term.children.reached(p.snapshot.Version) {
		p.looked()
	}
	return p.state.childrenTerm != p.inTerm
}

// looked records that a list, or a cache that is new enough, has shown all children in this term.
func (p *pass[O, C]) looked() { p.state.childrenTerm = p.inTerm }

// readLive reads the children from the server, and reports whether that succeeded.
func (p *pass[O, C]) readLive(ctx context.Context) (ok bool) {
	// Lists fail in an outage. If each pass made one, the outage would end with far more lists than it needs.
	if p.held(ListFailed, "", "", "") {
		return false
	}
	live, err := p.listLive(ctx)
	switch {
	case errors.Is(err, errListsBusy): // no error, because a pass in a second lists
		p.sendEventOnce(ListsBusy, "Error listing: "+err.Error())
		p.gate(ListsBusy, "", p.spread(ListsBusy.row().shortest), err)
		return false
	case err != nil && ctx.Err() == nil: // a list that the caller has canceled holds no other back
		p.sendEventOnce(ListFailed, "Error listing: "+err.Error())
		p.holdCalls(ListFailed, "", "", err)
	}
	if err != nil {
		p.addError(p.failure("listing children live: %w", err))
		return false
	}
	p.state.holds.end("", ListFailed)
	p.looked()
	p.judge(ledger.View[C]{}) // the list shows all, so the pass no longer waits for the cache
	p.setChildren(live)
	p.view.isLive = true
	return true
}

// spread adds up to a half to a delay, so that owners that met at the lists do not meet there again.
func (p *pass[O, C]) spread(d time.Duration) time.Duration {
	return d + time.Duration(p.opts.Random(int(d/2/time.Millisecond)+1))*time.Millisecond
}

// listLive makes a live list, and returns the children of the view after it.
func (p *pass[O, C]) listLive(ctx context.Context) ([]C, error) {
	start := p.state.ledger.Start()
	if _, err := p.allLive(ctx, start); err != nil {
		return nil, err
	}
	view, err := p.state.ledger.View(p.start, p.snapshot, p.opts.Now())
	return view.Children, err
}

// A term is a period during which only this process is active, for example because it holds a lease. When it begins, the
// caches may be older than what an earlier process saw. The zero value is the first term, before its first pass.
type term struct {
	mu     sync.Mutex
	before int // how many terms of this process have ended
	// The two versions are never compared with each other, because owners and children may be stored separately.
	owners, children serverVersion
}

// next begins the next term.
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

// askFirst asks the server for the version before any pass needs it.
func (v *serverVersion) askFirst(now func() time.Time, version func() (string, error)) {
	v.ask(now, version)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = time.Time{} // no pass waits for its cache yet
}

// forget drops the version when a term ends.
func (v *serverVersion) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forgotten++
	v.version, v.asked, v.last = "", time.Time{}, time.Time{}
}

// known returns the version, or "", and when a pass first asked for it.
func (v *serverVersion) known() (version string, asked time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.version, v.asked
}

// reached reports whether a cache with the given version shows everything that existed when the term began.
func (v *serverVersion) reached(version string) bool {
	known, _ := v.known()
	return resourceversion.Reached(version, known)
}

// patience returns how long a pass waits before it looks at the cache again. The waits double, and their sum is at most
// the longest wait of CacheBehind.
func (v *serverVersion) patience(now time.Time) time.Duration {
	_, asked := v.known()
	row, waited := CacheBehind.row(), now.Sub(asked)
	if waited < 0 || waited >= row.longest { // below 0 if the clock was set back
		return 0
	}
	return min(max(waited, row.shortest), row.longest-waited)
}

// ask returns the version, for which it asks the server if necessary, or "" if it is still unknown.
func (v *serverVersion) ask(now func() time.Time, version func() (string, error)) string {
	v.mu.Lock()
	at := now()
	if v.asked.IsZero() {
		v.asked = at
	}
	// All owners share one question. While it hangs, others go on, and a server that refuses is asked once a second.
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
		// NewTerm was called meanwhile, so another process may have changed more since this answer.
		if err == nil && forgotten == v.forgotten {
			v.version = answer
		}
	}()
	if answer, err = version(); err != nil {
		return ""
	}
	return answer
}

// wantedSlots returns the names of the wanted slots that have a child or are on hold. It returns nil if slots are not the
// names of children.
func (p *pass[O, C]) wantedSlots() sets.Set[string] {
	hasSlots := p.spec.Slots != nil || slices.ContainsFunc(p.spec.Groups, func(g replicas.Group[C]) bool { return g.Slots != nil })
	if !hasSlots || p.spec.SlotOf != nil {
		return nil
	}
	wanted, known := sets.New[string](), sets.New[string]()
	for k := range p.state.holds {
		if k.Reason == NameTaken {
			known.Insert(k.Key)
		}
	}
	for _, c := range p.view.children {
		known.Insert(c.GetName())
	}
	for _, g := range groupsIn(p.spec) {
		if g.Slots == nil || g.Replicas > replicas.MaxSlots { // such a spec is refused later
			continue
		}
		// To name each of a million slots would take seconds and a gigabyte, so naming ends when all known ones are found.
		for i := 0; i < int(g.Replicas) && len(wanted) < len(known); i++ {
			if name := g.Slots(i); known.Has(name) {
				wanted.Insert(name)
			}
		}
	}
	return wanted
}

// candidates returns the children on which the plan is based.
func (p *pass[O, C]) candidates() []C {
	if p.view.wanted == nil {
		return p.view.children
	}
	// A stranger has the name web-1, and no event says when that is free again. So the slot counts as empty, the creation
	// is tried, and its failure holds the slot for a while.
	return slices.DeleteFunc(slices.Clone(p.view.children), func(c C) bool { return !p.controls(c) && !p.snapshot.Rules.MayCount(c) })
}

// takenSlots returns the slots that no new child can fill: those of the candidates, and those on hold.
func (p *pass[O, C]) takenSlots() (names []string) {
	if p.view.wanted == nil {
		return nil
	}
	candidates, active := p.candidates(), sets.New[string]()
	for _, c := range candidates {
		if names = append(names, c.GetName()); p.rules.Active(c) {
			active.Insert(c.GetName())
		}
	}
	for _, c := range candidates {
		// A pod was evicted, and no rule discards it. No creation can get its name, and without this gate nothing would say so.
		if name := c.GetName(); p.view.wanted.Has(name) && !active.Has(name) && !p.rules.Leaving(c) && !p.rules.Ended(c) {
			p.gate(NameTaken, name, 0, nil)
		}
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
