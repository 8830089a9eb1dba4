// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// A view has the children in the newest state that the pass knows, and the spec for decisions about them.
type view[C Object] struct {
	// children are the children in the cache, with newer facts applied.
	children []C
	wanted   sets.Set[string] // see wantedSlots
	unmet    bool             // the view may lack children, or have some that are gone
	begins   bool             // the view counts as old only because this term has not checked the children yet
	// spec is the Spec of the owner, with the calls in flight, the taken names and the undecided
	// adoptions added.
	spec replicas.Spec[C]
}

// plan decides what to do with the cached children and newer facts. If this view is known to be old and
// something must be done, plan first lists the children live. If the view may lack earlier calls, plan
// also lists the children, because even an empty plan may be wrong. The result ok says whether the pass
// continues.
func (p *pass[O, C]) plan(ctx context.Context) (plan replicas.Plan[C], ok bool) {
	if !p.readCache(ctx) {
		return plan, false
	}
	plan, ok = p.manage()
	isOld := plan.Blocked.Reason == replicas.ViewIsStale || plan.Blocked.Reason == "" && (p.view.unmet || p.isUnsure())
	if !ok || !isOld {
		return plan, ok
	}
	if p.view.begins {
		switch wait := p.awaitCache(ctx); {
		case wait > 0:
			p.gate(CacheBehind, "", wait, nil)
			return plan, false
		case !p.isNewToTerm():
			p.view.spec.Pending = expectations.Satisfied
			return p.manage()
		}
	}
	if !p.readLive(ctx) {
		return plan, false
	}
	return p.manage()
}

// isUnsure reports whether Prepare would get a view that may be old, although the pass no longer waits
// for the cache. The version of the cache is then unknown, or the pass has waited long enough.
func (p *pass[O, C]) isUnsure() bool {
	return p.kind.Prepare != nil && p.view.spec.Pending == expectations.Expired && (!p.view.begins || p.term.children.patience(p.opts.Now()) <= 0)
}

// manage makes a plan for the view, and sets the fields of the Outcome from which the status is computed.
func (p *pass[O, C]) manage() (plan replicas.Plan[C], ok bool) {
	plan, err := replicas.Manage(p.candidates(), p.view.spec)
	if err != nil {
		p.refuse(err)
		p.gate(SpecRefused, "", 0, err)
		p.fails(err)
		return plan, false
	}
	p.Active, p.Terminating, p.Observed = plan.Claims.Owned, p.terminating(), true
	if reason, is := blocks[plan.Blocked.Reason]; is {
		p.gate(reason, "", 0, nil).Until = plan.Blocked.Until
	}
	return plan, true
}

// readCache reads the children from the cache.
func (p *pass[O, C]) readCache(ctx context.Context) (ok bool) {
	p.start = p.state.known.Start()
	read := &p.snapshot
	read.Version, read.Newest = p.cache.ChildrenVersion(), p.newest.is()
	var err error
	if read.Children, err = p.cache.Children(ctx, p.Owner); err != nil {
		p.retryIn(serverDelay([]error{err}))
		p.fails(p.failure("listing children: %w", err))
		return false
	}
	read.Selector = p.spec.Selector
	read.Rules = ledger.RulesOf(p.Owner, p.kind.Owner.GroupKind(), p.spec.Selector, p.rules.Active) // a missing selector is refused later
	p.lookAtServer(ctx)
	seen, err := p.state.known.View(p.start, p.snapshot, p.Now)
	if err != nil {
		p.fails(p.failure("the cache: %w", err))
		return false
	}
	p.view.spec = p.spec
	p.view.spec.Names = func(prefix string) string { return prefix + suffix(p.opts.Random) }
	if p.spec.Related == nil {
		p.view.spec.Related = func() []C { return p.related(ctx) }
	}
	p.view.unmet = seen.Unmet
	p.view.begins = p.isNewToTerm() && !seen.Stale && seen.Waits == 0
	switch {
	case seen.Waits > 0:
		p.view.spec.Pending, p.view.spec.PendingFor = expectations.Waiting, seen.Waits
	case seen.Stale || p.view.begins:
		p.view.spec.Pending = expectations.Expired
	default:
		p.view.spec.Pending = expectations.Satisfied
	}
	p.sees(seen.Children)
	return true
}

// sees sets the children of the view. In the view's spec, sees sets the calls in flight and the names
// that no new child can have now.
func (p *pass[O, C]) sees(children []C) {
	p.view.children = children
	p.view.wanted = p.wantedSlots()
	is := p.state.known.InFlight()
	p.view.spec.CreationsInFlight, p.view.spec.DeletionsInFlight = is.Creations, is.Deletions
	p.view.spec.Taken = append(p.taken(), is.Taken...)
}

// readLive reads the children from the server, so that the pass no longer waits for the cache. The result
// ok says whether the list succeeded. If live lists are held back, the pass has no error, because a later
// pass lists again.
func (p *pass[O, C]) readLive(ctx context.Context) (ok bool) {
	p.ViewWasStale = true
	live, err := p.listLive(ctx)
	if err != nil {
		p.unlisted(err)
		if !errors.As(err, new(heldError)) {
			p.fails(p.failure("listing children live: %w", err))
		}
		return false
	}
	p.view.spec.Pending, p.view.spec.PendingFor = expectations.Satisfied, 0
	p.sees(live)
	p.looked()
	return true
}

// unlisted sends an event and notes a gate, because the pass can do nothing without the live list that
// failed.
func (p *pass[O, C]) unlisted(err error) {
	reason, wait := ListFailed, p.lists.retryIn(err)
	if held := (heldError{}); errors.As(err, &held) && held.busy {
		reason = ListsBusy
	}
	p.tell(reason, "Error listing: "+err.Error())
	p.gate(reason, "", wait, err)
}

// listLive makes a live list of what the owner's selector matches, and returns the children of the new
// view.
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
	for _, c := range p.view.children {
		if isTerminating(c) && owner.Controls(c) && p.spec.Selector.Matches(labels.Set(c.GetLabels())) {
			terminating = append(terminating, c)
		}
	}
	return terminating
}

// related returns the objects that Cache.Related has for the owner. The ranking of the owner's children
// depends on these objects.
func (p *pass[O, C]) related(ctx context.Context) (related []C) {
	related, p.RelatedErr = p.cache.Related(ctx, p.Owner)
	if p.RelatedErr != nil {
		p.tell(RelatedFailed, "Error listing related "+p.childResource.Resource+": "+p.RelatedErr.Error())
		p.gate(RelatedFailed, "", 0, p.RelatedErr)
		return nil
	}
	return related
}

func (p *pass[O, C]) activeOf(children []C) (active []C) {
	for _, c := range children {
		if p.rules.Active(c) {
			active = append(active, c)
		}
	}
	return active
}

// isNewToTerm reports whether this term knows the owner's children only from a cache that may be older
// than what an earlier process saw.
func (p *pass[O, C]) isNewToTerm() bool {
	if p.state.childrenTerm != p.inTerm && p.term.children.reached(p.snapshot.Version) {
		p.looked()
	}
	return p.state.childrenTerm != p.inTerm
}

// awaitCache asks the server for its resourceVersion, and returns how long to wait until the cache is
// checked again for that version. awaitCache returns 0 if the cache has reached the version or takes too
// long, or if the client or the cache has no versions.
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

// lookAtServer asks the server for its resourceVersion in the first pass of a term, if the client and the
// cache support versions. The answer can prove that the server was restored while this process was on
// standby.
func (p *pass[O, C]) lookAtServer(ctx context.Context) {
	versioner, ok := p.client.(Versioner)
	if _, asked := p.term.children.known(); ok && p.snapshot.Version != "" && asked.IsZero() {
		p.askChildrenVersion(ctx, versioner)
	}
}

// looked notes that this term has seen all children, in a live list or in a cache that is new enough.
func (p *pass[O, C]) looked() { p.state.childrenTerm = p.inTerm }

// cachePatience is how long the first passes of a term wait at most for the cache. The cache must reach
// the resourceVersion that the server had when the term began.
const cachePatience = 2 * time.Second

// A term is the time in which only this process is active, for example because it holds a lease. When a
// term begins, the caches may be older than what an earlier process saw. The zero value is the first
// term, before its first pass.
type term struct {
	mu     sync.Mutex
	before int // how many terms came before this one
	// Owners and children may be stored separately, so the two versions are never compared with each
	// other.
	owners, children serverVersion
}

// next ends the term. The next pass begins in a new term.
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
	is        string    // "" if not known
	asked     time.Time // when a pass first asked for the version
	last      time.Time // when the server was last asked
	asking    bool
	forgotten int // how often forget was called
}

// askFirst asks the server before any pass does. askFirst clears asked, because no pass is waiting for a
// cache yet.
func (v *serverVersion) askFirst(now func() time.Time, version func() (string, error)) {
	v.ask(now, version)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = time.Time{}
}

// forget drops the version of a term that has ended.
func (v *serverVersion) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forgotten++
	v.is, v.asked, v.last = "", time.Time{}, time.Time{}
}

// known returns the version, or "" if the version is not known, and when a pass first asked for the
// version.
func (v *serverVersion) known() (is string, asked time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.is, v.asked
}

// reached reports whether a cache with the given version shows everything that existed when the term
// began.
func (v *serverVersion) reached(version string) bool {
	is, _ := v.known()
	return resourceversion.Reached(version, is)
}

// patience returns how long a pass waits before it checks the cache again. If passes have waited for
// cachePatience, patience returns 0.
func (v *serverVersion) patience(now time.Time) time.Duration {
	_, asked := v.known()
	waited := now.Sub(asked)
	if waited < 0 || waited >= cachePatience {
		return 0
	}
	return min(max(waited, 50*time.Millisecond), cachePatience-waited)
}

// ask asks the server for the version, unless the version is known, another pass is asking, or the last
// request was less than a second ago. The result is the version, or "" if the version is still unknown.
func (v *serverVersion) ask(now func() time.Time, version func() (string, error)) string {
	v.mu.Lock()
	at := now()
	if v.asked.IsZero() {
		v.asked = at
	}
	if v.is != "" || v.asking || !v.last.IsZero() && at.Sub(v.last) < time.Second && !at.Before(v.last) {
		defer v.mu.Unlock()
		return v.is
	}
	forgotten := v.forgotten
	v.asking, v.last = true, at
	v.mu.Unlock()
	is, err := "", errors.New("controller: a panic")
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.asking = false
		if err == nil && forgotten == v.forgotten {
			v.is = is
		}
	}()
	if is, err = version(); err != nil {
		return ""
	}
	return is
}

// wantedSlots returns the names of the wanted slots that have a child or are held. If there are too many
// slots, wantedSlots returns no names, because the spec is then refused.
func (p *pass[O, C]) wantedSlots() sets.Set[string] {
	wanted := sets.New[string]()
	if p.spec.Slots == nil || p.spec.Replicas > replicas.MaxSlots {
		return wanted
	}
	known := sets.New[string]()
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
	for i := 0; i < int(p.spec.Replicas) && len(wanted) < len(known); i++ {
		if name := p.spec.Slots(i); known.Has(name) {
			wanted.Insert(name)
		}
	}
	return wanted
}

// sameSlots reports whether two specs with the same number of slots want the same slots. Only the first
// slots are compared, as many as there are children plus the number that one plan may fill.
func (p *pass[O, C]) sameSlots(a, b *replicas.Spec[C]) bool {
	if a.Slots == nil || b.Slots == nil {
		return a.Slots == nil && b.Slots == nil
	}
	for i := range min(int(a.Replicas), len(p.view.children)+cmp.Or(a.BurstReplicas, replicas.DefaultBurstReplicas)) {
		if a.Slots(i) != b.Slots(i) {
			return false
		}
	}
	return true
}

// candidates returns the children for the plan. If there are slots, candidates leaves out objects that
// cannot become the owner's children. No event reports when such an object frees the name of a slot, so
// the pass tries to create the slot's child, and holds the slot after a failure.
func (p *pass[O, C]) candidates() []C {
	if p.spec.Slots == nil {
		return p.view.children
	}
	return slices.DeleteFunc(slices.Clone(p.view.children), func(c C) bool { return !p.controls(c) && !p.snapshot.Rules.MayCount(c) })
}

// taken returns the names that no new child can have. The result has the names in Spec.Taken. If there
// are slots, the result also has the names of the candidates and of held slots.
func (p *pass[O, C]) taken() []string {
	names := slices.Clone(p.spec.Taken)
	if p.spec.Slots == nil {
		return names
	}
	for _, c := range p.candidates() {
		names = append(names, c.GetName())
	}
	for k := range p.state.holds {
		switch {
		case k.Reason != NameTaken:
		case !p.view.wanted.Has(k.Key):
			delete(p.state.holds, k)
		case p.held(NameTaken, k.Key, k.Key, 0):
			names = append(names, k.Key)
		}
	}
	return names
}

// isSlotTaken reports whether a creation failed because another object has the name of the
// slot.
func (p *pass[O, C]) isSlotTaken(err error) bool {
	return p.spec.Slots != nil && apierrors.IsAlreadyExists(err)
}

// holdSlot puts off creations in a slot whose name another object has. A hold is necessary because there
// may be no event when that object goes.
func (p *pass[O, C]) holdSlot(name string, err error) {
	h := p.state.holds.of(NameTaken, name)
	NameTaken.grow(&h.Hold, p.opts.Now())
	h.why = err
	p.gate(NameTaken, name, h.Wait, err)
}

// isEnded reports whether a child of the view has ended, so that the pass discards the child.
func (p *pass[O, C]) isEnded(c C) bool {
	return p.spec.Rules.Ended(c) && p.controls(c) && p.snapshot.Rules.MayCount(c) && c.GetDeletionTimestamp() == nil
}

// activeAndEnded returns the active children, and those that the pass discards.
func (p *pass[O, C]) activeAndEnded() []C {
	if p.spec.Rules.NoneEnds() {
		return p.Active
	}
	all := slices.Clone(p.Active)
	for _, c := range p.view.children {
		if p.isEnded(c) {
			all = append(all, c)
		}
	}
	return all
}
