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
	viewed   Moment               // when the reading of the cache of the last view began
	cached   []C                  // what the cache had then, until the pass is over
	known    map[types.UID]string // the versions of cached, once they are asked for
	children map[types.UID]*entry[C]
	names    []Name
	owner    Owner
	strays   []C
	list     bar
	selector labels.Selector // of the last view
	read     string          // how far the cache had come in the last view
	// distrusted says that the cache lacks what it should show, until the next list.
	distrusted bool
	// passed is a wait that begins when the cache seems to have passed by a child that it
	// does not show.
	passed backoff.Hold
	hides  bool // the last view hid a child that no entry is about
	passes bool // a pass is under way, and has a view
}

// entry is all that is known of one child.
type entry[C metav1.Object] struct {
	fact  fact[C]
	since time.Time // the last time that something was said
	doubt doubt
	shown Moment // the last view whose cache had the child
	call  call
}

// A call is what the owner's controller did to a child and the cache is to show. The last one
// counts.
type call uint8

const (
	none call = iota
	created
	deleted
)

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
	l.moment++
	return l.moment
}

// Done notes that the pass is over, and so are all observations. It drops what the cache had.
func (l *Ledger[C]) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cached, l.known, l.passes = nil, nil, false
	for id, e := range l.children {
		l.tidy(id, e)
	}
}

// Told notes that the server said, in the answer to a call that began at start, that a
// child is as c. It is an error if c is nil or has no name, or if start is not from Start.
func (l *Ledger[C]) Told(start Moment, c C, now time.Time) error {
	return l.told(start, c, none, now)
}

// Created is Told for the answer to a creation. Views say that the cache is to be waited for until
// it shows the child.
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

// Deleted notes that the server accepted the deletion of a child of the view, which is there until
// its grace period and its finalizers end. Views say that the cache is to be waited for until it
// shows the child as deleted, or not at all.
func (l *Ledger[C]) Deleted(id types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		return
	}
	e := l.entry(id)
	e.call, e.since, e.doubt = deleted, now, doubt{}
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
	l.tell(id, fact[C]{word: word[C]{version: version, at: max(start, 1)}}, now)
}

// Left notes that a child is being deleted or has left what the cache has of the owner: an event
// says so. If no view has had the child, that tells that the cache has had it in between. It
// may be a child that the pass under way has created, and not noted yet.
func (l *Ledger[C]) Left(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" || l.children[id] == nil && !l.passes {
		return
	}
	e := l.entry(id)
	e.shown = max(e.shown, 1) // the next view ends the call: one that was read before may still need it
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

// had reports whether the cache had a child when the pass that is under way read it.
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

// A List is what a live list returned.
type List[C metav1.Object] struct {
	Items []C
	// Version is that of the list itself, "" if it is not known.
	Version string
}

// Listed notes a live list of all that s.Selector matches, which began at start. s is what
// the cache had before that. It is an error if an item or a rule is nil, or if start is not
// from Start.
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
	for _, e := range l.children { // the list shows what became of the calls
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
		l.list = bar{} // no version of a child is older
	}
	l.passed.Since = time.Time{}
	return nil
}

// isShownBy reports whether a cached child is as a live list has it, or newer.
func isShownBy(cached, listed metav1.Object) bool {
	return resourceversion.Reached(cached.GetResourceVersion(), listed.GetResourceVersion())
}

// tellAbsent tells of the children that the list lacks. Of those that the cache has, the
// list itself tells, if versions are known. It does not confirm that a child is gone which
// the cache has and which does not match.
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

// WentBack notes that the cache went back to an older state, as one does that is filled anew
// from an API server that is behind. What was known was known beside a newer cache, so it is
// forgotten. Views are old until the children are listed.
func (l *Ledger[C]) WentBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginAnew()
}

func (l *Ledger[C]) beginAnew() {
	l.forgetFacts()
	l.distrusted = true
}

// Distrust notes that the cache lacks something that it should show by now, such as the
// status that was written before. Views are old until the children are listed.
func (l *Ledger[C]) Distrust() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.distrusted = true
}

// Forget forgets all but the requests without an answer and the strays. It is for an owner
// that has left the cache, and may come back.
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

// tidy drops an entry that says nothing.
func (l *Ledger[C]) tidy(id types.UID, e *entry[C]) {
	if e.fact.isEmpty() && !e.doubt.any() && e.call == none {
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
