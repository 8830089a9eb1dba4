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

// A Ledger remembers facts about the children of one owner until the cache shows these facts. The zero
// Ledger contains no facts and is ready to use. The type parameter C is a pointer type such as *corev1.Pod.
// The Ledger keeps references to the objects that are passed to it, but does not modify them. All methods
// are safe for concurrent use. For example, a pass may record the answers to parallel calls. However, two
// passes must not use the same Ledger at the same time.
type Ledger[C metav1.Object] struct {
	// Patience is the time for which the Ledger trusts a fact that the cache does not show. The value 0
	// means DefaultPatience. Do not change Patience after the first use of the Ledger.
	Patience time.Duration

	mu       sync.Mutex
	moment   Moment
	viewed   Moment          // the start of the last View
	cached   []C             // the children in the cache at the last View; nil after Done
	known    map[types.UID]C // the cached children by UID; filled on first use
	children map[types.UID]*entry[C]
	names    []Name
	made     sets.Set[types.NamespacedName] // the names of all creations ever sent; see Made
	strays   []C
	list     bar
	selector labels.Selector // the selector in the last call to View or Listed
	read     string          // the version of the cache at the last View
	// If true, every view is stale until the next live list. It is set, for example, if the cache went
	// back to an older state.
	distrusted bool
	// If a child is missing although the cache seems to be newer than the child, View.Unmet becomes true
	// after this delay. See suspect.
	passed backoff.Hold
	hides  bool // whether the last View omitted a cached child because of the last live list
	passes bool // whether a pass has called View but not yet Done
}

// An entry holds everything that the Ledger knows about one child.
type entry[C metav1.Object] struct {
	fact  fact[C]
	since time.Time // when an answer or a deletion was last recorded
	doubt doubt
	shown Moment // the Moment of the last View that found the child in the cache; 1 if no View has found it, but Left was called
	call  call
}

// A call is a creation or deletion that the owner's controller has made and that the cache does not show
// yet. Only the last call about a child is kept.
type call uint8

const (
	none call = iota
	created
	deleted
)

// A doubt is an unanswered delete call for a child. If the child has no unanswered delete call, the doubt is
// zero.
type doubt struct {
	version string    // the resourceVersion in the preconditions of the call; "" if none
	sent    time.Time // when the call was last sent
}

func (d doubt) any() bool { return !d.sent.IsZero() }

// A bar contains the last live list. The last live list may show that some children in the cache are
// outdated. If a cached child is older than the list and is missing from the list, the child is gone or no
// longer counts as a replica. For example, after a watch has stalled and resumed, the cache may still show
// children that are gone.
type bar struct {
	version  string
	children sets.Set[types.UID]
	start    Moment
	since    time.Time
}

func (b bar) excludes(c metav1.Object) bool {
	return b.hides(idOf(c)) && resourceversion.Older(c.GetResourceVersion(), b.version)
}

// hides reports whether the child is missing from the list. If the child is missing, all its versions up to
// the list's version are outdated.
func (b bar) hides(id types.UID) bool { return b.version != "" && !b.children.Has(id) }

func (l *Ledger[C]) patience() time.Duration {
	if l.Patience == 0 {
		return DefaultPatience
	}
	return l.Patience
}

// Start begins an observation and returns its Moment. Call Start before a pass reads the cache, before the
// children are listed live, and before a call is made. The method Done ends the pass.
func (l *Ledger[C]) Start() Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moment++
	return l.moment
}

// Done must be called at the end of a pass. This ends all observations of the pass. The Ledger then drops
// its references to the cached children.
func (l *Ledger[C]) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cached, l.known, l.passes = nil, nil, false
	for id, e := range l.children {
		l.tidy(id, e)
	}
}

// Told records that the server has returned the child c in the answer to a call. The parameter start is the
// Moment at which the call began. Told returns an error if c is nil or has no name, or if start is 0.
func (l *Ledger[C]) Told(start Moment, c C, now time.Time) error {
	return l.told(start, c, none, now)
}

// Created records the answer to a create call. The parameters and errors are those of Told. From then on,
// View.Waits includes the time to wait until the cache shows the child.
func (l *Ledger[C]) Created(start Moment, c C, now time.Time) error {
	return l.told(start, c, created, now)
}

func (l *Ledger[C]) told(start Moment, c C, by call, now time.Time) error {
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
	l.tell(id, fact[C]{word: word[C]{there: true, child: c, version: c.GetResourceVersion(), at: start}}, now)
	l.children[id].call = by
	return nil
}

// Deleted records a delete call that the server has accepted. The parameter id is the UID of a child in the
// view. This child exists until its grace period is over and its finalizers are removed. View.Waits
// includes the time to wait until the cache shows that the child is being deleted or gone.
func (l *Ledger[C]) Deleted(id types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		return
	}
	e := l.entry(id)
	e.call, e.since, e.doubt = deleted, now, doubt{}
}

// Gone records that a child no longer exists, as the answer to a call has shown. The parameter start is the
// Moment at which the call began. If a live list that began later contains the child, the answer was wrong,
// and the child counts again. The methods Deleted, Gone, Lacked, Left, Doubt and Sure ignore an empty UID.
func (l *Ledger[C]) Gone(start Moment, id types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(id, fact[C]{gone: max(start, 1)}, now)
}

// Lacked records that a child is missing from a live list of all objects that match the owner's selector.
// The child is gone or no longer matches the selector. The parameter start is the Moment at which the list
// call began. The parameter version is the resourceVersion of the list, or "" if it is unknown.
func (l *Ledger[C]) Lacked(start Moment, id types.UID, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(id, fact[C]{word: word[C]{version: version, at: max(start, 1)}}, now)
}

// Left must be called if an event shows that a child is being deleted, or is no longer one of the owner's
// children in the cache. Such an event proves that the cache has contained the child, even if no view has
// shown the child. The event may arrive after the current pass has created the child and before the pass
// calls Created.
func (l *Ledger[C]) Left(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" || l.children[id] == nil && !l.passes {
		return
	}
	e := l.entry(id)
	e.shown = max(e.shown, 1) // keep the call until the next View, because the current pass may still need it
}

func (l *Ledger[C]) tell(id types.UID, f fact[C], now time.Time) {
	if id == "" {
		return
	}
	e := l.entry(id)
	if l.wasCached(id) && (!isNumber(f.word.version) || !isNumber(l.known[id].GetResourceVersion())) {
		f.word.cachedAs = l.known[id]
	}
	e.fact, e.since, e.call = e.fact.join(f), now, none
}

func (l *Ledger[C]) entry(id types.UID) *entry[C] {
	e := l.children[id]
	if e == nil {
		if l.children == nil {
			l.children = map[types.UID]*entry[C]{}
		}
		e = &entry[C]{}
		if l.wasCached(id) {
			e.shown = l.viewed
		}
		l.children[id] = e
	}
	return e
}

// wasCached reports whether the cache contained a child when the current pass read the cache.
func (l *Ledger[C]) wasCached(id types.UID) bool {
	if l.known == nil {
		l.known = make(map[types.UID]C, len(l.cached))
		for _, c := range l.cached {
			l.known[idOf(c)] = c
		}
	}
	_, had := l.known[id]
	return had
}

// A List is the result of a live list call.
type List[C metav1.Object] struct {
	Items []C
	// Version is the resourceVersion of the list, or "" if it is unknown.
	Version string
}

// Listed records a live list of all objects that match s.Selector. The parameter start is the Moment at
// which the list call began. The parameter s is a Snapshot of the cache, read before that call began.
// Listed returns an error if start is 0, or if an item, a child in s or a rule is nil.
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
	for _, e := range l.children { // the list already shows the effects of all recorded calls
		e.call = none
	}
	l.selector, l.distrusted = s.Selector, false
	l.list = bar{list.Version, make(sets.Set[types.UID], len(items)), start, now}
	cached := make(map[types.UID]C, len(s.Children))
	for _, c := range s.Children {
		cached[idOf(c)] = c
	}
	for _, c := range items {
		l.list.children.Insert(idOf(c))
		shown, ok := cached[idOf(c)]
		e := l.children[idOf(c)]
		if e == nil && ok && isShownBy(shown, c) {
			continue
		}
		if e != nil && e.fact.gone < start {
			e.fact.gone = 0 // a proxy answered a deletion with 404, and the server never got the call
		}
		l.tell(idOf(c), fact[C]{word: word[C]{there: true, child: c, version: c.GetResourceVersion(), at: start}}, now)
	}
	l.tellAbsent(start, s, cached, now)
	if !isNumber(list.Version) {
		l.list = bar{} // without a numeric version, the list cannot be compared with children
	}
	l.passed.Since = time.Time{}
	return nil
}

// isShownBy reports whether a cached child is at least as new as the same child in a live list.
func isShownBy(cached, listed metav1.Object) bool {
	return resourceversion.Reached(cached.GetResourceVersion(), listed.GetResourceVersion())
}

// tellAbsent records which children are missing from the list. Suppose that a cached child is missing from
// the list, and that the Ledger has no fact about the child. If the list and the child both have a numeric
// version, View compares the two versions, so tellAbsent records nothing. If the version of the list or of
// the child is not numeric, tellAbsent records a fact. If a child does not match the selector, no list
// contains the child. Its absence from the list then proves nothing.
func (l *Ledger[C]) tellAbsent(start Moment, s Snapshot[C], cached map[types.UID]C, now time.Time) {
	is := fact[C]{word: word[C]{version: l.list.version, at: start}}
	for id, e := range l.children {
		if l.list.children.Has(id) || e.fact.isEmpty() {
			continue
		}
		if c, ok := cached[id]; ok && e.fact.gone > 0 && !s.Rules.MayCount(c) {
			continue
		}
		if w := e.fact.word; w.there && e.fact.gone == 0 && !s.Rules.MayCount(w.child) {
			l.tell(id, fact[C]{}, now) // no list contains this child
			continue
		}
		l.tell(id, is, now)
	}
	for _, c := range s.Children {
		id := idOf(c)
		known := isNumber(l.list.version) && isNumber(c.GetResourceVersion())
		if !known && !l.list.children.Has(id) && s.Rules.MayCount(c) {
			l.tell(id, is, now)
		}
	}
}

// WentBack records that the cache went back to an older state. For example, a cache may be filled again
// from an API server that lags behind. The Ledger has already dropped the facts that the cache showed
// before it went back. The cache may no longer show these facts, so the cache and the Ledger together are
// incomplete. WentBack therefore drops all facts that the Ledger still contains. All views are stale until
// the children are listed live.
func (l *Ledger[C]) WentBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginAnew()
}

func (l *Ledger[C]) beginAnew() {
	l.forgetFacts()
	l.distrusted = true
}

// Distrust records that the cache lacks a change that it should already contain. An example is a status
// that an earlier pass has written. All views are stale until the children are listed live.
func (l *Ledger[C]) Distrust() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.distrusted = true
}

// Forget drops everything except the unanswered requests and the strays. Call Forget for an owner that is
// no longer in the cache but may return.
func (l *Ledger[C]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetFacts()
	l.distrusted, l.read, l.selector = false, "", nil
}

func (l *Ledger[C]) forgetFacts() {
	for id, e := range l.children {
		*e = entry[C]{doubt: e.doubt}
		l.tidy(id, e)
	}
	l.list, l.passed, l.hides = bar{}, backoff.Hold{}, false
}

// tidy deletes an entry if it is empty.
func (l *Ledger[C]) tidy(id types.UID, e *entry[C]) {
	if e.fact.isEmpty() && !e.doubt.any() && e.call == none {
		delete(l.children, id)
	}
}

// Doubt records a delete call that was sent and got no answer. The parameter version is the resourceVersion
// in the preconditions of the call, or "" if there was none. The Ledger keeps this call until a view shows
// that the child is missing, is being deleted, or is newer than the version in the preconditions. The
// methods Deleted, Sure and Landed also remove the call. The Ledger does not remove a delete call only
// because time has passed.
func (l *Ledger[C]) Doubt(id types.UID, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		return
	}
	e := l.entry(id)
	if e.doubt.any() && e.doubt.version != version {
		version = "" // either of the two delete calls may take effect
	}
	e.doubt = doubt{version, now}
}

// Sure removes the unanswered delete call for a child. Call Sure if the child's deletion has taken effect,
// or if no delete call for the child can still take effect.
func (l *Ledger[C]) Sure(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.children[id]; e != nil {
		e.doubt = doubt{}
		l.tidy(id, e)
	}
}

// Doubted returns the delete calls that got no answer. The map contains the UID of each child and the time
// at which the delete call was last sent. If the Ledger contains no unanswered delete call, the map is nil.
// The caller owns the map.
func (l *Ledger[C]) Doubted() (sent map[types.UID]time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.children {
		if !e.doubt.any() {
			continue
		}
		if sent == nil {
			sent = map[types.UID]time.Time{}
		}
		sent[id] = e.doubt.sent
	}
	return sent
}

// Landed forgets the unanswered requests that were sent at least five minutes before a live list; see
// Landing. The list already shows the effects of these requests. Call Landed after Listed has recorded the
// list. The parameter began is the time at which the list call began.
func (l *Ledger[C]) Landed(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = slices.DeleteFunc(l.names, func(n Name) bool { return n.HasLanded(began) })
	for id, e := range l.children {
		if e.doubt.any() && began.Sub(e.doubt.sent) >= Landing {
			e.doubt = doubt{}
			l.tidy(id, e)
		}
	}
}

// Unanswered returns the maximum time for which an unanswered request can still take effect. If there is no
// such request, the result is 0. The result is at most Landing, even if the clock was set back.
func (l *Ledger[C]) Unanswered(now time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setClock(now)
	for _, n := range l.names {
		longest = max(longest, landsIn(n.Sent, now))
	}
	for _, e := range l.children {
		if e.doubt.any() {
			longest = max(longest, landsIn(e.doubt.sent, now))
		}
	}
	return longest
}

// setClock sets the times in the Ledger that are in the future to the current time. If the clock was set
// back, each wait would be too long without this correction.
func (l *Ledger[C]) setClock(now time.Time) {
	for i := range l.names {
		notAfter(now, &l.names[i].Sent)
	}
	for _, e := range l.children {
		notAfter(now, &e.since)
		notAfter(now, &e.doubt.sent)
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
