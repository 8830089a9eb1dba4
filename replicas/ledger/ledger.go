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

// DefaultPatience is the patience of a Ledger whose field Patience is 0.
const DefaultPatience = 5 * time.Minute

// A Ledger remembers facts about the children of one owner that the cache does not show yet. The zero
// Ledger has no facts and is ready to use. C is a pointer type such as *corev1.Pod. The Ledger keeps the
// objects that are passed to it, and does not change them. Several goroutines may call the methods of a
// Ledger at once, but only one pass at a time may use a Ledger.
type Ledger[C metav1.Object] struct {
	// Patience is how long a fact counts while the cache does not show that fact. 0 means
	// DefaultPatience. Do not change Patience after the first use of the Ledger.
	Patience time.Duration

	mu       sync.Mutex
	moment   Moment
	viewed   Moment               // when the last View began to read the cache
	cached   []C                  // the children in the cache at viewed, until the pass is over
	known    map[types.UID]string // the versions of the children in cached, set on first use
	children map[types.UID]*entry[C]
	names    []Name
	owner    Owner
	strays   []C
	list     bar
	selector labels.Selector // the selector of the last view or list
	read     string          // the version of the cache in the last view
	// distrusted means that the cache lacks something that it should show. The next live list clears
	// distrusted.
	distrusted bool
	// passed is a wait that begins when the cache seems to be newer than a child that the cache lacks.
	passed backoff.Hold
	hides  bool // the last view left out a child that has no entry
	passes bool // a pass has called View, and has not called Done
}

// entry has all that the Ledger knows about one child.
type entry[C metav1.Object] struct {
	fact  fact[C]
	since time.Time // when an answer, or a deletion, was last noted
	doubt doubt
	shown Moment // when the last view began whose cache had the child
	call  call
}

// A call is a creation or deletion by the owner's controller that the cache does not show yet. If a child
// had several calls, the last one counts.
type call uint8

const (
	none call = iota
	created
	deleted
)

// A doubt is a deletion that was sent and had no answer. The zero doubt means that there is no such
// deletion.
type doubt struct {
	version string    // the resourceVersion in the preconditions of the call, "" if none
	sent    time.Time // when the last call was sent
}

func (d doubt) any() bool { return !d.sent.IsZero() }

// A bar is the last live list. If the list lacks a child that is older than the list, the child is gone
// or belongs to someone else. For example, a watch that stalled and then resumed may still show children
// that are gone.
type bar struct {
	version  string
	children sets.Set[types.UID]
	start    Moment
	since    time.Time
}

func (b bar) excludes(c metav1.Object) bool {
	return b.hides(idOf(c)) && resourceversion.Older(c.GetResourceVersion(), b.version)
}

// hides reports whether the list lacks a child, so that all versions of the child up to the list's
// version are outdated.
func (b bar) hides(id types.UID) bool { return b.version != "" && !b.children.Has(id) }

func (l *Ledger[C]) patience() time.Duration {
	if l.Patience == 0 {
		return DefaultPatience
	}
	return l.Patience
}

// Start notes that an observation begins. Call Start before a pass reads the cache, before the children
// are listed, and before a call is made. Done ends the pass.
func (l *Ledger[C]) Start() Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moment++
	return l.moment
}

// Done notes that the pass and all its observations are over. The Ledger then drops its references to the
// children in the cache.
func (l *Ledger[C]) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cached, l.known, l.passes = nil, nil, false
	for id, e := range l.children {
		l.tidy(id, e)
	}
}

// Told notes that the answer to a call showed a child as c. The call began at start. Told returns an
// error if c is nil or has no name, or if start is not from Start.
func (l *Ledger[C]) Told(start Moment, c C, now time.Time) error {
	return l.told(start, c, none, now)
}

// Created notes the answer to a creation, as Told does. View.Waits then says how long to wait until the
// cache shows the child.
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

// Deleted notes that the server accepted the deletion of a child in the view. The child exists until its
// grace period and its finalizers end. View.Waits then says how long to wait until the cache shows that
// the child is being deleted or gone.
func (l *Ledger[C]) Deleted(id types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		return
	}
	e := l.entry(id)
	e.call, e.since, e.doubt = deleted, now, doubt{}
}

// Gone notes that a call has shown that a child no longer exists. The call began at start. Gone and the
// methods below ignore an empty UID, because each child has a UID.
func (l *Ledger[C]) Gone(start Moment, id types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(id, fact[C]{gone: max(start, 1)}, now)
}

// Lacked notes that a child is missing from a live list of all objects that the owner's selector matches.
// The child is gone or no longer matches the selector. The list call began at start. version is the
// resourceVersion of the list, or "" if it is not known.
func (l *Ledger[C]) Lacked(start Moment, id types.UID, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(id, fact[C]{word: word[C]{version: version, at: max(start, 1)}}, now)
}

// Left notes that an event shows that a child is being deleted or has left the owner's children in the
// cache. Such an event proves that the cache had the child, even if no view has shown the child. The
// child may be one that the current pass has created and not noted yet.
func (l *Ledger[C]) Left(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" || l.children[id] == nil && !l.passes {
		return
	}
	e := l.entry(id)
	e.shown = max(e.shown, 1) // only the next view ends the call, because the current view may still need it
}

func (l *Ledger[C]) tell(id types.UID, f fact[C], now time.Time) {
	if id == "" {
		return
	}
	e := l.entry(id)
	if l.had(id) {
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
		if l.had(id) {
			e.shown = l.viewed
		}
		l.children[id] = e
	}
	return e
}

// had reports whether the cache had a child when the current pass read the cache.
func (l *Ledger[C]) had(id types.UID) bool {
	if l.known == nil {
		l.known = make(map[types.UID]string, len(l.cached))
		for _, c := range l.cached {
			l.known[idOf(c)] = c.GetResourceVersion()
		}
	}
	_, had := l.known[id]
	return had
}

// A List is the result of a live list call.
type List[C metav1.Object] struct {
	Items []C
	// Version is the resourceVersion of the list, or "" if it is not known.
	Version string
}

// Listed notes a live list of all objects that s.Selector matches. The list call began at start, and s is
// a Snapshot of the cache from before that call. Listed returns an error if an item or a rule is nil, or
// if start is not from Start.
func (l *Ledger[C]) Listed(start Moment, list List[C], s Snapshot[C], now time.Time) error {
	if err := s.check(start); err != nil {
		return err
	}
	if i := object.IndexNil(list.Items); i >= 0 {
		return fmt.Errorf("ledger: items[%d] is nil", i)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	items := s.Rules.those(list.Items)
	for _, e := range l.children { // the list shows the effects of all calls
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
		if e := l.children[idOf(c)]; e == nil && ok && isShownBy(shown, c) {
			continue
		}
		l.tell(idOf(c), fact[C]{word: word[C]{there: true, child: c, version: c.GetResourceVersion(), at: start}}, now)
	}
	l.tellAbsent(start, s, cached, now)
	if !isNumber(list.Version) {
		l.list = bar{} // children can be compared only with a numeric version
	}
	l.passed.Since = time.Time{}
	return nil
}

// isShownBy reports whether a cached child is at least as new as the same child in a live list.
func isShownBy(cached, listed metav1.Object) bool {
	return resourceversion.Reached(cached.GetResourceVersion(), listed.GetResourceVersion())
}

// tellAbsent notes the children that the list lacks. If versions can be compared, the bar already hides
// the cached children that the list lacks. If versions cannot be compared, each of these children gets a
// fact. If a cached child does not match the selector, the list does not confirm that the child is gone.
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
			l.tell(id, fact[C]{}, now) // the list does not cover this child
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

// WentBack notes that the cache went back to an older state. For example, a cache may be filled again
// from an API server that lags behind. The Ledger forgets its facts, because they are only complete
// together with the newer cache. Views are stale until the children are listed live.
func (l *Ledger[C]) WentBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginAnew()
}

func (l *Ledger[C]) beginAnew() {
	l.forgetFacts()
	l.distrusted = true
}

// Distrust notes that the cache lacks something that it should already show, such as a status that an
// earlier pass wrote. Views are stale until the children are listed live.
func (l *Ledger[C]) Distrust() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.distrusted = true
}

// Forget drops everything except the requests without an answer and the strays. Call Forget for an owner
// that has left the cache and may return.
func (l *Ledger[C]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetFacts()
	l.distrusted, l.read, l.selector, l.owner = false, "", nil, Owner{}
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

// Doubt notes that the deletion of a child was sent and had no answer. version is the resourceVersion in
// the preconditions of the call, or "" if there was none. The doubt ends if a view lacks the child, shows
// that the child is being deleted, or has the child in a later version than the one in the preconditions.
// Deleted, Sure and Landed also end the doubt, but time alone does not.
func (l *Ledger[C]) Doubt(id types.UID, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		return
	}
	e := l.entry(id)
	if e.doubt.any() && e.doubt.version != version {
		version = "" // either of the two calls may take effect
	}
	e.doubt = doubt{version, now}
}

// Sure notes that a deletion of a child has taken effect, or that no deletion of the child can still take
// effect.
func (l *Ledger[C]) Sure(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.children[id]; e != nil {
		e.doubt = doubt{}
		l.tidy(id, e)
	}
}

// Doubted returns the deletions without an answer. The map has the UID of each child and the time of the
// last delete call. If there are no such deletions, the map is nil. The caller owns the map.
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

// Landed forgets the requests without an answer that were sent at least Landing before began. Call Landed
// after Listed has noted a list that began at the time began. The list shows the effects of these
// requests, and they can have no further effect.
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

// Unanswered returns how long requests without an answer may still take effect, or 0 if there are no such
// requests. The result is at most Landing, even if the clock went back.
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

// setClock changes all times that are after now to now. Otherwise, if the clock went back, each wait
// would last until the clock reaches the old time again.
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

var errStart = errors.New("ledger: start is not from Start")

func idOf(c metav1.Object) types.UID { return object.ID(c) }

func nameOf(c metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}
}
