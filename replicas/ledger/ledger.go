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

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
)

// DefaultPatience is how long a fact counts that the cache does not show, if
// Ledger.Patience is 0.
const DefaultPatience = 5 * time.Minute

// A Ledger is what is known of the children of one owner beyond what the cache shows. The
// zero value knows nothing. C is a pointer type such as *corev1.Pod. The ledger keeps the
// objects that it is told, and does not change them. All methods may be called by several
// goroutines at once, but only one pass at a time may be made by a Ledger.
type Ledger[C metav1.Object] struct {
	// Patience is how long a fact counts that the cache does not show. 0 means
	// DefaultPatience. It must not change once the Ledger is used.
	Patience time.Duration

	mu       sync.Mutex
	moment   Moment
	viewed   Moment              // when the reading of the cache of the last view began
	cached   []C                 // what the cache had then, until the pass is over
	known    sets.Set[types.UID] // the UIDs of cached, once they are asked for
	underWay bool                // a pass is
	children map[types.UID]*entry[C]
	names    []Name
	owner    Owner
	strays   []C
	list     bar
	selector labels.Selector // of the last view
	read     string          // how far the cache had come in the last view
	// ownerRead is the version of the owner that a call has shown last, and ownerAhead the one
	// that the cache had then, if that is from a future that is no more.
	ownerRead, ownerAhead string
	// distrusted says that the cache lacks what it should show.
	distrusted bool
	// void says that nothing is known, and that the cache may be from before, so that only
	// a live list tells.
	void bool
	// ahead is how far the cache had come when a later list was older. Until the cache
	// goes back, it is from a future that is no more.
	ahead string
	// former are the versions of cached children that a later list showed to be from before a
	// restore. As long as the cache has a child in that version, it proves nothing.
	former map[types.UID]string
	// passed is a wait that begins when the cache seems to have passed by a child that it
	// does not show.
	passed wait
	hides  bool // the last view hid a child that no entry is about
}

// entry is all that is known of one child.
type entry[C metav1.Object] struct {
	fact  fact[C]
	since time.Time // the last time that something was said
	told  Moment    // when no observation had begun that began later than that
	doubt doubt
	shown Moment // the last view whose cache had the child
}

// A doubt is a deletion that was sent and had no answer. The zero value is none.
type doubt struct {
	version string    // that the call carried, "" if none
	sent    time.Time // the last call
}

func (d doubt) any() bool { return !d.sent.IsZero() }

// A bar is the last live list. A child that is older, and that the list did not show, is
// gone or another's: a watch that hung and goes on shows the dead once more.
type bar struct {
	version  string
	children sets.Set[types.UID]
	start    Moment
	told     Moment // when no observation had begun that began later than that
	since    time.Time
}

func (b bar) excludes(c metav1.Object) bool {
	return b.hides(idOf(c)) && resourceversion.Older(c.GetResourceVersion(), b.version)
}

// hides reports whether a child is excluded in each version that is no newer than the list.
func (b bar) hides(id types.UID) bool { return b.version != "" && !b.children.Has(id) }

func (l *Ledger[C]) patience() time.Duration {
	if l.Patience == 0 {
		return DefaultPatience
	}
	return l.Patience
}

// Start notes that an observation begins: that the cache is read for a pass, that the
// children are listed, or that a call is made. The pass is over with Done.
func (l *Ledger[C]) Start() Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay = true
	return l.begin()
}

func (l *Ledger[C]) begin() Moment {
	l.moment++
	return l.moment
}

// Done notes that the pass is over, and so are all observations. Without it events take a
// little more memory until the next pass.
func (l *Ledger[C]) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay, l.cached, l.known = false, nil, nil
}

// Told notes that the server said, in the answer to a call that began at start, that a
// child is as c. It is an error if c is nil or has no name, or if start is not from Start.
func (l *Ledger[C]) Told(start Moment, c C, now time.Time) error {
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
	if e := l.children[idOf(c)]; e != nil && e.isAfter(start, c.GetResourceVersion()) {
		l.newEpoch()
	}
	l.tell(idOf(c), said(word[C]{there, c, c.GetResourceVersion(), start}), now)
	return nil
}

// Created notes that a call that began at start has created a child with this version. If
// anything that was said before has a later version, the server was restored from a backup.
func (l *Ledger[C]) Created(start Moment, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wentBack := l.list.told < start && resourceversion.Older(version, l.list.version)
	for _, e := range l.children {
		wentBack = wentBack || e.isAfter(start, version)
	}
	if wentBack {
		l.newEpoch()
	}
}

// isAfter reports whether an observation that began at start is of an earlier version than
// what was known of the child before. Versions do not go back unless the server does.
func (e *entry[C]) isAfter(start Moment, version string) bool {
	return e.told < start && resourceversion.Older(version, e.fact.newest.version)
}

// Gone notes that a call that began at start has shown that a child does not exist any
// more. An empty UID is no child's: nothing is noted then, here and below.
func (l *Ledger[C]) Gone(start Moment, id types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(id, fact[C]{gone: max(start, 1)}, now)
}

// Lacked notes that a live list of all that the owner's selector matches, which began at
// start, lacks a child: it is gone, or does not match any more. version is that of the list,
// "" if it is not known.
func (l *Ledger[C]) Lacked(start Moment, id types.UID, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(id, said(word[C]{is: absent, version: version, at: max(start, 1)}), now)
}

// Left notes that a child left the cache: an event says so. version is that of the event,
// or "" if it is not known, as a cache that was filled anew does not tell what it missed.
func (l *Ledger[C]) Left(id types.UID, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.children[id]
	if id == "" || !l.underWay && (e == nil || e.fact.isEmpty()) {
		return // the next view of the cache shows it
	}
	l.tell(id, said(word[C]{is: left, version: version, at: l.begin()}), now)
	l.children[id].shown = 0 // if it comes back, the cache has yet to show it
}

func (l *Ledger[C]) tell(id types.UID, f fact[C], now time.Time) {
	if id == "" {
		return
	}
	e := l.entry(id)
	e.fact, e.since, e.told = e.fact.join(f), now, l.moment
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

// had reports whether the cache had a child when the pass that is under way read it.
func (l *Ledger[C]) had(id types.UID) bool {
	if l.known == nil {
		l.known = make(sets.Set[types.UID], len(l.cached))
		for _, c := range l.cached {
			l.known.Insert(idOf(c))
		}
	}
	return l.known.Has(id)
}

// A List is what a live list returned.
type List[C metav1.Object] struct {
	Items []C
	// Version is that of the list itself, "" if it is not known.
	Version string
}

// Listed notes a live list of all that s.Selector matches, which began at start. s is what
// the cache had before that. It reports whether the server was restored from a backup:
// then the list is all that is known. It is an error if an item or a rule is nil, or if start
// is not from Start.
func (l *Ledger[C]) Listed(start Moment, list List[C], s Snapshot[C], now time.Time) (restored bool, err error) {
	if err := s.check(start); err != nil {
		return false, err
	}
	if i := object.IndexNil(list.Items); i >= 0 {
		return false, fmt.Errorf("ledger: items[%d] is nil", i)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	items := s.Rules.those(list.Items)
	isOlder := resourceversion.Older(list.Version, s.Version)
	former := s.later(items, list.Version)
	restored = isOlder || len(former) > 0 || l.contradicts(start, items, list.Version)
	waits := l.passed
	if restored {
		l.newEpoch()
	} else if l.void || l.ahead != "" {
		l.forgetFacts()
	}
	l.selector, l.distrusted, l.void, l.ahead, l.former = s.Selector, false, false, "", nil
	if isOlder {
		l.ahead = s.Version
	} else if len(former) > 0 {
		l.former = former
		s.Children = slices.DeleteFunc(slices.Clone(s.Children), l.isFormer)
	}
	l.list = bar{list.Version, make(sets.Set[types.UID], len(items)), start, l.moment, now}
	cached := make(map[types.UID]C, len(s.Children))
	for _, c := range s.Children {
		cached[idOf(c)] = c
	}
	for _, c := range items {
		l.list.children.Insert(idOf(c))
		shown, ok := cached[idOf(c)]
		if e := l.children[idOf(c)]; e == nil && ok && l.ahead == "" && isShownBy(shown, c) {
			continue
		}
		l.tell(idOf(c), said(word[C]{there, c, c.GetResourceVersion(), start}), now)
	}
	l.tellAbsent(start, s, cached, now)
	if !isNumber(list.Version) {
		l.list = bar{} // no version of a child is older
	}
	l.passed = wait{lasts: waits.lasts}
	if l.ahead != "" || l.former != nil { // each view is an old one until the cache goes back
		l.passed.double(now, firstSuspicion, lastSuspicion)
	}
	return restored, nil
}

// isShownBy reports whether a cached child is as a live list has it, or newer.
func isShownBy(cached, listed metav1.Object) bool {
	return resourceversion.Reached(cached.GetResourceVersion(), listed.GetResourceVersion())
}

// tellAbsent tells of the children that the list lacks. Of those that the cache has, the
// list itself tells, if versions are known. It does not confirm that a child is gone which
// the cache has and which does not match.
func (l *Ledger[C]) tellAbsent(start Moment, s Snapshot[C], cached map[types.UID]C, now time.Time) {
	is := said(word[C]{is: absent, version: l.list.version, at: start})
	for id, e := range l.children {
		if l.list.children.Has(id) || e.fact.isEmpty() {
			continue
		}
		if c, ok := cached[id]; ok && e.fact.gone > 0 && !s.Rules.MayCount(c) {
			continue
		}
		if w := e.fact.counts(); w.is == there && e.fact.gone == 0 && !s.Rules.MayCount(w.child) {
			l.tell(id, fact[C]{}, now) // the list was not asked for it
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

// contradicts reports whether what was known before a list began cannot be true if the list
// is: one of the items was gone or newer, or left in that version, or the list is of an earlier
// version, or of one for which another list has made a child unclear.
func (l *Ledger[C]) contradicts(start Moment, items []C, version string) bool {
	if len(l.children) == 0 {
		return resourceversion.Older(version, l.list.version)
	}
	for _, c := range items {
		e := l.children[idOf(c)]
		if e == nil {
			continue
		}
		hasLeft := e.fact.newest.is == left && e.fact.newest.version == c.GetResourceVersion()
		if e.told < start && (e.fact.gone > 0 || hasLeft) || e.isAfter(start, c.GetResourceVersion()) {
			return true
		}
	}
	for _, e := range l.children {
		newest := e.fact.newest
		if e.isAfter(start, version) || newest.is == unclear && newest.version == version && e.told < start {
			return true
		}
	}
	return resourceversion.Older(version, l.list.version)
}

// Void notes that the server was restored from a backup: what was said before proves
// nothing, and the cache may show what was after it. The next view is an old one.
func (l *Ledger[C]) Void() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newEpoch()
}

// Distrust notes that the cache lacks something that it should show by now, such as the
// status that was written before. Views are old until the children are listed.
func (l *Ledger[C]) Distrust() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.distrusted = true
}

func (l *Ledger[C]) makeVoid() {
	l.forgetFacts()
	l.void, l.ahead = true, ""
}

// newEpoch forgets what was said of another state of the server. An owner that no version of the
// cache shows was read since the server was restored: what goes back now is the cache.
func (l *Ledger[C]) newEpoch() {
	l.makeVoid()
	l.ownerRead = ""
	if l.owner.Is == nil || l.owner.Version != "" {
		l.owner = Owner{}
	}
}

// Forget forgets all but the requests without an answer and the strays. It is for an owner
// that has left the cache, and may come back.
func (l *Ledger[C]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetFacts()
	l.distrusted, l.void, l.ahead, l.read, l.selector, l.owner, l.ownerRead, l.ownerAhead = false, false, "", "", nil, Owner{}, "", ""
}

func (l *Ledger[C]) forgetFacts() {
	for id, e := range l.children {
		*e = entry[C]{doubt: e.doubt}
		l.tidy(id, e)
	}
	l.list, l.former, l.passed, l.hides = bar{}, nil, wait{}, false
}

// tidy drops an entry that says nothing.
func (l *Ledger[C]) tidy(id types.UID, e *entry[C]) {
	if e.fact.isEmpty() && !e.doubt.any() {
		delete(l.children, id)
	}
}

// Doubt notes that the deletion of a child was sent, and that it had no answer. version is
// the resourceVersion that the call carried, "" if none. The doubt ends if a view does not
// have the child any more, has it as deleted, or has it in a later version than the call
// carried. Neither a clock nor what becomes of a later call ends it.
func (l *Ledger[C]) Doubt(id types.UID, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		return
	}
	e := l.entry(id)
	if e.doubt.any() && e.doubt.version != version {
		version = "" // of two calls each may take effect
	}
	e.doubt = doubt{version, now}
}

// Sure notes that no deletion of a child can take effect any more, or that one did.
func (l *Ledger[C]) Sure(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.children[id]; e != nil {
		e.doubt = doubt{}
		l.tidy(id, e)
	}
}

// Doubted returns when the deletions were last sent that had no answer, by the UIDs of the
// children; nil if there are none. The map is the caller's.
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

// Landed forgets the requests without an answer that were sent Landing or longer before
// began. Call it after Listed noted a list that began then: the list shows what became of
// them, and nothing else can become of them.
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

// Unanswered returns how long it takes until no request that had no answer can take effect
// any more; 0 if there is none. It is at most Landing, even if the clock went back.
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

// setClock lets no time be after now. If the clock went back, each wait would otherwise last
// until the clock has caught up.
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
