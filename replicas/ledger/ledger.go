// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
)

// DefaultPatience is used if Ledger.Patience is 0.
const DefaultPatience = 5 * time.Minute

// A Ledger remembers facts about the children of one owner until the cache shows them. The zero Ledger knows
// nothing and is ready to use. C is a pointer type such as *corev1.Pod. The Ledger keeps references to the
// objects that are passed to it, but does not modify them. All methods are safe for concurrent use, so that a
// pass may record the answers to parallel calls, but two passes must not use one Ledger at the same time.
type Ledger[C metav1.Object] struct {
	// Patience is the time for which the Ledger trusts a fact that the cache does not show; 0 means
	// DefaultPatience. Do not change it after the first use of the Ledger.
	Patience time.Duration

	mu           sync.Mutex
	moment       Moment
	viewed       Moment          // the start of the last View
	cached       []C             // the children in the cache at the last View; nil after Done
	known        map[types.UID]C // the cached children by UID; filled on first use
	entries      map[types.UID]*entry[C]
	names        []Name
	sent         sets.Set[types.NamespacedName] // the names of all creations ever sent; see WasSent
	list         bar
	selector     labels.Selector // the selector in the last call to View or Listed
	cacheVersion string          // the version of the cache at the last View
	// Every view is stale until the next live list, for example because the cache went back.
	stale     bool
	suspicion backoff.Hold // the delay before View.Unmet while the cache seems to have passed a child by; see suspect
	hidden    bool         // whether the last View left out a cached child because of the last live list
	inPass    bool         // whether a pass has called View but not yet Done
}

// An entry holds everything that the Ledger knows about one child.
type entry[C metav1.Object] struct {
	fact       fact[C]
	since      time.Time // when an answer or a deletion was last recorded
	unanswered unanswered
	shown      Moment // the start of the last View that found the child in the cache; 1 if none has, but ObserveLeaving was called
	call       call
}

// A call is a creation or deletion that the owner's controller has made and that the cache does not show
// yet. Only the last call about a child is kept.
type call uint8

const (
	none call = iota
	created
	deleted
)

// A Verb says what an unanswered call about a child was to do.
type Verb uint8

// The verbs of CallUnanswered. Names of unanswered creations are recorded by CreateSent.
const (
	Delete Verb = 1 << iota
	Update
)

// An unanswered holds the unanswered calls for a child; it is zero if there are none.
type unanswered struct {
	verbs   Verb      // of the calls that may still take effect
	version string    // the resourceVersion in the preconditions of the calls; "" if none, or if they differ
	sent    time.Time // when the last of the calls was sent
}

func (d unanswered) any() bool { return !d.sent.IsZero() }

// A bar is the last live list. A watch that hung for minutes and goes on where it stopped shows pods once
// more that have died since. The bar keeps those out of the view that the list lacked, if they are older.
type bar struct {
	version string
	uids    sets.Set[types.UID]
	start   Moment
	since   time.Time
}

func (b bar) excludes(c metav1.Object) bool {
	return b.hides(idOf(c)) && resourceversion.Older(c.GetResourceVersion(), b.version)
}

// hides reports whether the list lacks the child, so that all its versions up to the list's are outdated.
func (b bar) hides(id types.UID) bool { return b.version != "" && !b.uids.Has(id) }

func (l *Ledger[C]) patience() time.Duration {
	if l.Patience == 0 {
		return DefaultPatience
	}
	return l.Patience
}

// Start begins an observation and returns its Moment. Call it before a pass reads the cache, before the
// children are listed live, and before a call is made, because later observations count more. Done ends a pass.
func (l *Ledger[C]) Start() Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moment++
	return l.moment
}

// Done must be called at the end of a pass. It ends the observations of the pass, and drops the references to
// the cached children.
func (l *Ledger[C]) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cached, l.known, l.inPass = nil, nil, false
	for id, e := range l.entries {
		l.tidy(id, e)
	}
}

// Observe records that the server has returned the child c in the answer to the call that began at start. It
// returns an error if c is nil or has no name, or if start is 0.
func (l *Ledger[C]) Observe(start Moment, c C, now time.Time) error {
	return l.observe(start, c, none, now)
}

// Created records the answer to a create call, as Observe does and with the same errors. From then on,
// View.Waits includes the time to wait until the cache shows the child.
func (l *Ledger[C]) Created(start Moment, c C, now time.Time) error {
	return l.observe(start, c, created, now)
}

func (l *Ledger[C]) observe(start Moment, c C, cause call, now time.Time) error {
	switch {
	case start == 0:
		return errStart
	case object.IsNil(c):
		return errors.New("ledger: a child is nil")
	case c.GetName() == "":
		return errors.New("ledger: a child without a name")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := idOf(c)
	l.record(id, fact[C]{answer: answer[C]{there: true, child: c, version: c.GetResourceVersion(), at: start}}, now)
	e := l.entries[id]
	if e.call = cause; !e.unanswered.lasts(c) {
		e.unanswered = unanswered{}
	}
	return nil
}

// Deleted records a delete call that the server has accepted, for a child in the view. The child may exist
// until its grace period is over and its finalizers are removed. View.Waits includes the time to wait until
// the cache shows that the child is being deleted or gone.
func (l *Ledger[C]) Deleted(id types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		return
	}
	e := l.entry(id)
	e.call, e.since, e.unanswered = deleted, now, unanswered{}
}

// ObserveDeleted records that a child no longer exists, as the answer to the call that began at start has
// shown. It never counts again, unless a live list that began later contains it, because then the answer was
// wrong. An empty UID is ignored, also by Deleted, ObserveMissing, ObserveLeaving, CallUnanswered and
// CallAnswered.
func (l *Ledger[C]) ObserveDeleted(start Moment, id types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record(id, fact[C]{gone: max(start, 1)}, now)
}

// ObserveMissing records that a child is missing from a live list of all objects that match the owner's
// selector, so it is gone or no longer matches. The list call began at start, and version is the
// resourceVersion of the list, or "" if it is unknown.
func (l *Ledger[C]) ObserveMissing(start Moment, id types.UID, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record(id, fact[C]{answer: answer[C]{version: version, at: max(start, 1)}}, now)
}

// ObserveLeaving must be called when an event shows that a child is being deleted, or is no longer one of the
// owner's children in the cache. Such an event proves that the cache has contained the child, even if no view
// has shown it. It may arrive before Created is called for the child.
func (l *Ledger[C]) ObserveLeaving(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The pass has created web-2, which another client deletes at once, and both events come before the answer.
	// Without an entry from now on, and if the cache reports no version, web-2 would be awaited for five minutes.
	if id == "" || l.entries[id] == nil && !l.inPass {
		return
	}
	e := l.entry(id) // its call stays until the next View, because this pass may still Split what it has deleted
	e.shown = max(e.shown, 1)
}

func (l *Ledger[C]) record(id types.UID, f fact[C], now time.Time) {
	if id == "" {
		return
	}
	e := l.entry(id)
	// Versions that are no numbers do not say which of two is newer. Then the answer counts until the cached
	// child changes; see isShown.
	if l.wasCached(id) && (!isNumber(f.answer.version) || !isNumber(l.known[id].GetResourceVersion())) {
		f.answer.cachedAs = l.known[id]
	}
	e.fact, e.since, e.call = e.fact.join(f), now, none
}

func (l *Ledger[C]) entry(id types.UID) *entry[C] {
	e := l.entries[id]
	if e == nil {
		if l.entries == nil {
			l.entries = map[types.UID]*entry[C]{}
		}
		e = &entry[C]{}
		if l.wasCached(id) {
			e.shown = l.viewed
		}
		l.entries[id] = e
	}
	return e
}

// wasCached reports whether the cache contained the child when the current pass read it.
func (l *Ledger[C]) wasCached(id types.UID) bool {
	if l.known == nil {
		l.known = make(map[types.UID]C, len(l.cached))
		for _, c := range l.cached {
			l.known[idOf(c)] = c
		}
	}
	_, ok := l.known[id]
	return ok
}

// A List is the result of a live list call.
type List[C metav1.Object] struct {
	Items []C
	// Version is the resourceVersion of the list, or "" if it is unknown.
	Version string
}

// Listed records a live list of all objects that match s.Selector. The list call began at start, and s is a
// Snapshot of the cache that was read before. Listed returns an error if start is 0, or if an item, a child in
// s or a rule is nil.
func (l *Ledger[C]) Listed(start Moment, list List[C], s Snapshot[C], now time.Time) error {
	if err := s.check(start); err != nil {
		return err
	}
	if i := object.IndexNil(list.Items); i >= 0 {
		return fmt.Errorf("ledger: items[%d] is nil", i)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	items := s.Rules.thatMayCount(list.Items)
	// The event of web-2 was lost, so the cache has not shown its creation for five minutes. The list shows
	// what became of all answered calls, so none is waited for any longer.
	for _, e := range l.entries {
		e.call = none
	}
	l.selector, l.stale = s.Selector, false
	l.list = bar{list.Version, make(sets.Set[types.UID], len(items)), start, now}
	cached := make(map[types.UID]C, len(s.Children))
	for _, c := range s.Children {
		cached[idOf(c)] = c
	}
	for _, c := range items {
		l.list.uids.Insert(idOf(c))
		shown, ok := cached[idOf(c)]
		e := l.entries[idOf(c)]
		if e == nil && ok && isShownBy(shown, c) {
			continue
		}
		// A proxy answered the deletion of web-2 with a 404, and the server never got it. The list has web-2,
		// which would otherwise stay out of each view and be one too many for ever.
		if e != nil && e.fact.gone < start {
			e.fact.gone = 0
		}
		l.record(idOf(c), fact[C]{answer: answer[C]{there: true, child: c, version: c.GetResourceVersion(), at: start}}, now)
	}
	l.recordMissing(start, s, cached, now)
	if !isNumber(list.Version) {
		l.list = bar{} // it cannot be compared with children; recordMissing has made facts of what it lacks
	}
	l.suspicion.Since = time.Time{}
	return nil
}

// isShownBy reports whether a cached child is at least as new as the same child in a live list.
func isShownBy(cached, listed metav1.Object) bool {
	return resourceversion.Reached(cached.GetResourceVersion(), listed.GetResourceVersion())
}

// recordMissing records which children the list lacks: those with a fact, and if versions are no numbers, the
// cached ones too. The bar hides the others. No list has a child that does not match, so that proves nothing.
func (l *Ledger[C]) recordMissing(start Moment, s Snapshot[C], cached map[types.UID]C, now time.Time) {
	missing := fact[C]{answer: answer[C]{version: l.list.version, at: start}}
	for id, e := range l.entries {
		if l.list.uids.Has(id) || e.fact.isEmpty() {
			continue
		}
		// The ledger knows that web-2 is gone, and the cache has it with labels that do not match. The fact
		// stays as old as it is, so that it ends after Patience; see believe.
		if c, ok := cached[id]; ok && e.fact.gone > 0 && !s.Rules.MayCount(c) {
			continue
		}
		// A call has shown web-2 with labels that do not match, so the list lacks it for that alone.
		if answer := e.fact.answer; answer.there && e.fact.gone == 0 && !s.Rules.MayCount(answer.child) {
			l.record(id, fact[C]{}, now)
			continue
		}
		l.record(id, missing, now)
	}
	for _, c := range s.Children {
		id := idOf(c)
		known := isNumber(l.list.version) && isNumber(c.GetResourceVersion())
		if !known && !l.list.uids.Has(id) && s.Rules.MayCount(c) {
			l.record(id, missing, now)
		}
	}
}

// CacheRegressed records that the cache went back to an older state, for example because it was filled again
// from an API server that lags behind. The Ledger has dropped each fact that the cache showed before, and the
// cache may not show it any longer, so both together are incomplete. Therefore CacheRegressed drops all other
// facts too, and all views are stale until the children are listed live.
func (l *Ledger[C]) CacheRegressed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginAnew()
}

func (l *Ledger[C]) beginAnew() {
	l.forgetFacts()
	l.stale = true
}

// MarkStale records that the cache lacks a change that it should contain, such as a status that an earlier
// pass has written. All views are stale until the children are listed live.
func (l *Ledger[C]) MarkStale() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = true
}

// Forget drops everything but the unanswered requests, and what WasSent reports. Call it for an owner that is no
// longer in the cache but may return.
func (l *Ledger[C]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetFacts()
	l.stale, l.cacheVersion, l.selector = false, "", nil
}

func (l *Ledger[C]) forgetFacts() {
	for id, e := range l.entries {
		*e = entry[C]{unanswered: e.unanswered}
		l.tidy(id, e)
	}
	l.list, l.suspicion, l.hidden = bar{}, backoff.Hold{}, false
}

// tidy deletes an entry if it is empty.
func (l *Ledger[C]) tidy(id types.UID, e *entry[C]) {
	if e.fact.isEmpty() && !e.unanswered.any() && e.call == none {
		delete(l.entries, id)
	}
}

// CallUnanswered records a call about a child that was sent and got no answer: a deletion, or a change that makes the
// child unavailable. The version is the resourceVersion in the preconditions of the call, or "" if there was none. The
// Ledger keeps the call until a view shows that the child is missing, is being deleted, or is newer than that version,
// or until Deleted, CallAnswered or ExpireCalls is called. The mere passing of time does not remove it.
func (l *Ledger[C]) CallUnanswered(id types.UID, verb Verb, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		return
	}
	e := l.entry(id)
	// One deletion of web-2 was lost with version 3, and another one with version 5. Either may take effect, and
	// the entry has room for one version only, so no version in the cache ends the doubt.
	if e.unanswered.any() && e.unanswered.version != version {
		version = ""
	}
	e.unanswered = unanswered{e.unanswered.verbs | verb, version, now}
}

// CallAnswered removes the unanswered calls for a child. Call it when one of them has taken effect, or when none of
// them can any longer.
func (l *Ledger[C]) CallAnswered(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[id]; e != nil {
		e.unanswered = unanswered{}
		l.tidy(id, e)
	}
}

// UnansweredCalls returns, by the UID of each child with calls that got no answer, when the last of them was sent. The
// map is nil if there are none. The caller owns it.
func (l *Ledger[C]) UnansweredCalls() (sent map[types.UID]time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.entries {
		if !e.unanswered.any() {
			continue
		}
		if sent == nil {
			sent = map[types.UID]time.Time{}
		}
		sent[id] = e.unanswered.sent
	}
	return sent
}

// ExpireCalls forgets the requests without an answer that were sent at least MaxRequestAge before a live list began.
// Call it after Listed has recorded the list, which shows what became of these requests.
func (l *Ledger[C]) ExpireCalls(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = slices.DeleteFunc(l.names, func(n Name) bool { return n.IsExpired(began) })
	for id, e := range l.entries {
		if e.unanswered.any() && began.Sub(e.unanswered.sent) >= MaxRequestAge {
			e.unanswered = unanswered{}
			l.tidy(id, e)
		}
	}
}

// CallsExpireIn returns the longest time for which an unanswered request can still take effect, or 0 if there is no
// such request. It is at most MaxRequestAge, even if the clock was set back.
func (l *Ledger[C]) CallsExpireIn(now time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setClock(now)
	for _, n := range l.names {
		longest = max(longest, expiresIn(n.Sent, now))
	}
	for _, e := range l.entries {
		if e.unanswered.any() {
			longest = max(longest, expiresIn(e.unanswered.sent, now))
		}
	}
	return longest
}

// setClock moves times in the future to now. A clock that was set back an hour would otherwise make each wait
// an hour longer.
func (l *Ledger[C]) setClock(now time.Time) {
	for i := range l.names {
		notAfter(now, &l.names[i].Sent)
	}
	for _, e := range l.entries {
		notAfter(now, &e.since)
		notAfter(now, &e.unanswered.sent)
	}
	notAfter(now, &l.list.since)
}

func notAfter(now time.Time, t *time.Time) {
	if now.Before(*t) {
		*t = now
	}
}

var errStart = errors.New("ledger: start was not returned by Start")

func idOf(c metav1.Object) types.UID { return object.ID(c) }

func nameOf(c metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}
}
