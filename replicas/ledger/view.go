// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
)

// A Snapshot is the content of a cache at one moment.
type Snapshot[C metav1.Object] struct {
	// Version is the resourceVersion up to which Children includes all changes, or "" if it is unknown. Read
	// it before Children, so that Children is at least as new.
	Version string
	// Newest is the highest resourceVersion in the events of all children, or "" if it is unknown. It is used
	// only without Version: a cache that lacks a known child seems to have passed it by if Newest is higher
	// than the child's resourceVersion.
	Newest string
	// Children are the owner's children and the orphans, and may contain children of other owners.
	Children []C
	// Selector is the owner's selector. When it changes, the Ledger forgets its facts, because the earlier
	// lists were made with another one.
	Selector labels.Selector
	Rules    Rules[C]
}

func (s Snapshot[C]) check(start Moment) error {
	if start == 0 {
		return errStart
	}
	if !s.Rules.areComplete() {
		return errors.New("ledger: one of Rules is nil")
	}
	if i := object.IndexNil(s.Children); i >= 0 {
		return fmt.Errorf("ledger: children[%d] is nil", i)
	}
	return nil
}

// Rules classify children. All three functions are required.
type Rules[C metav1.Object] struct {
	// Ours reports whether the owner controls a child. MayCount reports whether a child can count as a replica,
	// and must be false for an object with another controller, or that no list with the owner's selector
	// contains. Active reports whether a child is neither finished nor being deleted.
	Ours, MayCount, Active func(C) bool
}

// RulesOf returns the rules for an owner of the given kind. Ours are the objects that the owner controls. An
// object can count as a replica if it matches the selector, no other owner controls it, and it is in the
// owner's namespace, unless the owner is in none. With a nil selector, no child counts. With a nil owner or
// active, the rules are incomplete, and View returns an error.
func RulesOf[C metav1.Object](owner metav1.Object, kind schema.GroupKind, matching labels.Selector, active func(C) bool) Rules[C] {
	if object.IsNil(owner) {
		return Rules[C]{}
	}
	ref, namespace, matchesNone := object.OwnerOf(owner, kind), owner.GetNamespace(), object.IsNil(matching)
	ours := func(c C) bool { return ref.Controls(c) }
	return Rules[C]{Ours: ours, Active: active, MayCount: func(c C) bool {
		if matchesNone || namespace != "" && namespace != c.GetNamespace() {
			return false
		}
		return (metav1.GetControllerOfNoCopy(c) == nil || ours(c)) && matching.Matches(labels.Set(c.GetLabels()))
	}}
}

func (r Rules[C]) areComplete() bool { return r.Ours != nil && r.MayCount != nil && r.Active != nil }

// Holder classifies the object c, and reports whether it is a child of the owner. The result is OtherObject
// and false if c or one of the rules is nil.
func (r Rules[C]) Holder(c C) (holder Holder, ours bool) {
	if object.IsNil(c) || !r.areComplete() {
		return OtherObject, false
	}
	switch ours = r.Ours(c); {
	case r.MayCount(c) && r.Active(c):
		return Replica, ours
	case ours:
		return OtherChild, true
	}
	return OtherObject, false
}

func (r Rules[C]) thatMayCount(children []C) []C {
	return slices.DeleteFunc(slices.Clone(children), func(c C) bool { return !r.MayCount(c) })
}

// A View contains the children in their newest known state.
type View[C metav1.Object] struct {
	// Children are those in the cache, as the newest facts show them, and then those that the cache lacks. If
	// the Ledger contains no facts, it is the slice Snapshot.Children itself.
	Children []C
	// Stale is true if the children must be listed live before any child is created or deleted.
	Stale bool
	// Unmet is true if the view may lack existing children or contain children that are gone. Then list the
	// children live even if the plan is empty, because their number may be right by chance.
	Unmet bool
	// Waits is the maximum time to wait until the cache shows all calls that were recorded with Created and
	// Deleted, or 0 if it shows them. When the cache takes longer than Ledger.Patience, the view is stale.
	Waits time.Duration
}

// View applies the facts to the children in the cache, and drops the facts that the cache shows. The caller
// began to read the cache at start. View returns an error if a child or a rule is nil, or if start is 0.
func (l *Ledger[C]) View(start Moment, s Snapshot[C], now time.Time) (View[C], error) {
	if err := s.check(start); err != nil {
		return View[C]{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setClock(now)
	l.checkCache(s) // before the facts count, because it may drop them
	l.viewed, l.hidden, l.inPass = start, false, true
	l.cached, l.known = s.Children, nil
	v := View[C]{Children: s.Children, Stale: l.stale}
	if resourceversion.Reached(s.Version, l.list.version) {
		l.forgetList()
	}
	if len(l.entries) > 0 || l.list.version != "" {
		o := overlay[C]{l, s, start, now, v}
		o.apply()
		v = o.result
	}
	if len(l.entries) == 0 {
		l.entries = nil
	}
	l.resolve(v.Children, s.Rules)
	l.forgetSent(v.Children)
	return v, nil
}

// forgetList forgets the last live list, which the cache has reached.
func (l *Ledger[C]) forgetList() {
	// The list had web-2 in version "x", which is no number, and web-2 has ended since. The cache lacks it, but
	// no comparison with "x" shows that the cache is newer.
	for id := range l.list.uids {
		if e := l.entries[id]; e != nil && !isNumber(e.fact.answer.version) && e.fact.gone == 0 && e.fact.answer.at <= l.list.start {
			e.fact = fact[C]{}
			l.tidy(id, e)
		}
	}
	l.list = bar{}
}

// checkCache drops the facts that were recorded next to a newer cache, or for another selector.
func (l *Ledger[C]) checkCache(s Snapshot[C]) {
	hasFacts := l.list.version != "" || len(l.entries) > 0
	// The cache was filled anew from a server that lags behind, and went from version 8 back to 4. It had shown
	// web-2 of version 6, so the ledger has no fact of web-2, and another pod would be created in its place. Or
	// the selector has changed, and children that match only the new one would count as gone, as no list had them.
	if resourceversion.Older(s.Version, l.cacheVersion) || hasFacts && differs(l.selector, s.Selector) {
		l.beginAnew()
	}
	if l.cacheVersion = s.Version; !object.IsNil(s.Selector) {
		l.selector = s.Selector
	}
}

func differs(a, b labels.Selector) bool {
	return !object.IsNil(a) && !object.IsNil(b) && a.String() != b.String()
}

// An overlay computes one View.
type overlay[C metav1.Object] struct {
	*Ledger[C]
	cache  Snapshot[C]
	start  Moment
	now    time.Time
	result View[C]
}

func (o *overlay[C]) apply() {
	for _, c := range o.cache.Children { // before lacking, which looks for those that this cache does not have
		if e := o.entries[idOf(c)]; e != nil {
			e.shown = o.start
		}
	}
	lacking := o.lacking()
	named := o.byName(lacking)
	children := make([]C, 0, len(o.cache.Children)+len(lacking))
	for _, cached := range o.cache.Children {
		c, ok := o.believe(cached)
		if ok && len(named) > 0 {
			ok = o.isNewest(c, named[nameOf(c)])
		}
		if ok {
			children = append(children, c)
		}
	}
	for _, e := range lacking {
		if e.fact.gone == 0 { // isNewest has not found a newer namesake
			o.markIfLate(e.since)
			children = append(children, e.fact.answer.child)
		}
	}
	o.result.Children = children
	o.suspect(lacking)
	o.result.Waits = o.waitsFor(o.now) // after believe and lacking, which end the waits for what the cache shows
	// The event of an answered deletion was lost, so the cache shows the child for ever.
	for _, e := range o.entries {
		if e.call != none {
			o.markIfLate(e.since)
		}
	}
}

// markIfLate is called for each record that the cache does not show yet.
func (o *overlay[C]) markIfLate(since time.Time) {
	// A live list showed web-2 six minutes ago, and the watch still hangs. web-2 may have died since, and would
	// never be replaced.
	if o.now.Sub(since) > o.patience() {
		o.result.Stale, o.result.Unmet = true, true
	}
}

// believe returns a cached child in its newest known state, and whether the child exists.
func (o *overlay[C]) believe(c C) (C, bool) {
	id := idOf(c)
	e := o.entries[id]
	if e == nil {
		return c, !o.isBarred(c)
	}
	// web-2 does not match, so no list can confirm or refute what was said of it five minutes ago.
	if !o.cache.Rules.MayCount(c) && (o.isMoot(e) || e.fact.gone > 0 && o.isAged(e)) {
		e.fact = fact[C]{}
	}
	if c.GetDeletionTimestamp() != nil {
		e.call = none
	}
	switch answer := e.fact.answer; {
	case e.fact.gone > 0, answer.isMissing() && !o.isShown(c, answer):
		// A read has found that web-2 is gone, and the cache still shows it, perhaps in a newer version than before.
		e.unanswered, e.call = unanswered{}, none
		o.markIfLate(e.since)
		return c, false
	case answer.there && !o.isShown(c, answer):
		o.markIfLate(e.since)
		c = answer.child
	default: // the cache shows the fact, which ends the wait for a creation, but not for a deletion
		if e.fact = (fact[C]{}); e.call == created {
			e.call = none
		}
		if o.isBarred(c) {
			e.unanswered, e.call = unanswered{}, none
			o.tidy(id, e)
			return c, false
		}
	}
	if !e.unanswered.lasts(c) {
		e.unanswered = unanswered{}
	}
	o.tidy(id, e)
	return c, true
}

func (a answer[C]) isMissing() bool { return a.at > 0 && !a.there }

// isShown reports whether the cached child c shows the answer or a newer state.
func (o *overlay[C]) isShown(c C, answer answer[C]) bool {
	switch {
	case !answer.there && !o.cache.Rules.MayCount(c): // no list has c, so that one lacked it proves nothing
		return true
	case answer.at > o.start:
		// The pass read web-2 in a cache without versions, and then patched it. Only this order says that the
		// answer is newer.
		return false
	case resourceversion.Reached(o.cache.Version, answer.version):
		return true
	}
	version := c.GetResourceVersion()
	switch order, err := resourceversion.Compare(version, answer.version); {
	case err != nil:
		// The versions were empty and the watch hung. After each list that had shown an ended pod, the next pass
		// believed the cache again, and deleted the living pod that had been made in its place.
		return version != "" && version == answer.version || answer.there && equality.Semantic.DeepEqual(c, answer.child) || !equality.Semantic.DeepEqual(c, answer.cachedAs)
	case answer.there:
		return order >= 0
	default:
		return order > 0
	}
}

// isBarred reports whether the last live list shows that a cached child is gone or no longer a replica.
func (o *overlay[C]) isBarred(c C) bool {
	if !o.list.excludes(c) || !o.cache.Rules.MayCount(c) {
		return false
	}
	o.hidden = true // so that RequeueAfter asks for a pass that looks whether the cache has dropped it
	o.markIfLate(o.list.since)
	return true
}

// lasts reports whether the call may still take effect on the child, even if c is an old version of it.
func (d unanswered) lasts(c metav1.Object) bool {
	version := c.GetResourceVersion()
	// The call meets a Conflict unless version <= d.version.
	return d.any() && c.GetDeletionTimestamp() == nil &&
		(d.version == "" || d.version == version || resourceversion.Older(version, d.version))
}

// lacking returns the entries of existing children that are missing from the cache, sorted by the start of
// their observations. It drops the facts of all other missing children that are no longer needed.
func (o *overlay[C]) lacking() (lacking []*entry[C]) {
	for id, e := range o.entries {
		if e.shown == o.start {
			continue
		}
		answer := e.fact.answer
		switch {
		case e.fact.gone == 0 && answer.there && !o.isSuperseded(id, e) && !o.isMoot(e):
			if !e.unanswered.lasts(answer.child) {
				e.unanswered = unanswered{}
			}
			lacking = append(lacking, e)
			continue
		case o.isSuperseded(id, e), o.isMoot(e):
			e.fact = fact[C]{}
		case !o.isAged(e): // it is gone, and the cache may still come to show it
		case !isNumber(answer.version): // a list would prove nothing
			e.fact = fact[C]{}
		default:
			// web-2 is gone, and a watch that has hung for longer than Patience goes on and shows it. If the fact
			// were dropped now, web-2 would count again. A list, which bars web-2, takes the place of the fact.
			o.result.Stale = true
		}
		// A cache that went back lacks web-2 although its deletion may still land.
		if e.call = none; !o.stale {
			e.unanswered = unanswered{}
		}
		o.tidy(id, e)
	}
	slices.SortFunc(lacking, func(a, b *entry[C]) int {
		v, w := a.fact.answer, b.fact.answer
		return cmp.Or(cmp.Compare(v.at, w.at), cmp.Compare(v.child.GetName(), w.child.GetName()), cmp.Compare(idOf(v.child), idOf(w.child)))
	})
	return lacking
}

func (o *overlay[C]) isAged(e *entry[C]) bool { return o.now.Sub(e.since) > o.patience() }

// isMoot reports whether a fact is older than Patience and about a child that no list has, as it does not match.
func (o *overlay[C]) isMoot(e *entry[C]) bool {
	answer := e.fact.answer
	return o.isAged(e) && answer.there && !o.cache.Rules.MayCount(answer.child)
}

// isSuperseded reports whether the cache, which lacks the child, is at least as new as its fact, or whether the
// fact is no longer needed.
func (o *overlay[C]) isSuperseded(id types.UID, e *entry[C]) bool {
	answer := e.fact.answer
	switch isGone := e.fact.gone > 0 || answer.isMissing(); {
	case e.fact.isEmpty():
		return true
	case e.fact.gone == 0 && answer.at >= o.start: // the answer came after the cache was read
		return false
	case isGone && o.list.hides(id) && (answer.at == 0 || isNumber(answer.version)) && o.list.start >= max(answer.at, e.fact.gone):
		return true // the bar hides it from now on
	}
	// An event has shown web-2 leave the cache, but the cache may have gone back since. Its version says more.
	if answer.there && isNumber(o.cache.Version) {
		return resourceversion.Reached(o.cache.Version, answer.version)
	}
	return e.shown > 0 || resourceversion.Reached(o.cache.Version, answer.version)
}

// byName returns the entries by the names of their children. A name is unique on the server, so the older of two
// namesakes is gone.
func (o *overlay[C]) byName(lacking []*entry[C]) map[types.NamespacedName]*entry[C] {
	named := make(map[types.NamespacedName]*entry[C], len(lacking))
	for _, e := range lacking {
		name := nameOf(e.fact.answer.child)
		if former := named[name]; former != nil {
			e = o.newer(former, e)
		}
		named[name] = e
	}
	return named
}

// newer returns the entry of the newer of two namesakes, and records that the older one is gone.
func (o *overlay[C]) newer(a, b *entry[C]) *entry[C] {
	v, w := a.fact.answer, b.fact.answer
	if order, err := resourceversion.Compare(v.version, w.version); err == nil && order > 0 || err != nil && v.at > w.at {
		a, b = b, a
		w = v
	}
	a.fact.gone, a.call = w.at, none
	return b
}

// isNewest reports whether the cached child c still exists, although the ledger may know a namesake, other, that
// the cache lacks.
func (o *overlay[C]) isNewest(c C, other *entry[C]) bool {
	if other == nil || other.fact.gone > 0 {
		return true
	}
	answer := other.fact.answer
	switch order, err := resourceversion.Compare(c.GetResourceVersion(), answer.version); {
	case err != nil || order == 0: // no version says which of the two is gone
		o.result.Stale, o.result.Unmet = true, true
	case order < 0:
		// The cache still has the first web-2, which has ended, and the ledger knows a second one of that name.
		// If both counted, the living one could be deleted as one too many.
		return false
	default:
		other.fact.gone, other.call = answer.at, none
	}
	return true
}

// firstSuspicion is the first delay before suspect sets View.Unmet. Each later one is twice as long, up to
// lastSuspicion.
const firstSuspicion, lastSuspicion = 5 * time.Second, 5 * time.Minute

// requeueInterval is the time between two passes while the cache does not show all facts. When a watch breaks
// and the cache lists again, it may show them without an event that causes a pass.
const requeueInterval = 5 * time.Second

// suspect marks a view from a cache without a version that seems to have passed a missing child by.
func (o *overlay[C]) suspect(lacking []*entry[C]) {
	if len(lacking) == 0 || o.cache.Version != "" {
		o.suspicion = backoff.Hold{}
		return
	}
	if !slices.ContainsFunc(lacking, func(e *entry[C]) bool {
		return resourceversion.Older(e.fact.answer.version, o.cache.Newest)
	}) {
		return
	}
	if o.suspicion.Since.IsZero() {
		o.suspicion.Double(o.now, firstSuspicion, lastSuspicion)
	}
	// Events have come as far as version 9, and web-2 of version 7 is not in the cache, so it may have come and
	// gone. But those events may be from another watch, so a list waits five seconds unless the plan needs it.
	o.result.Stale = true
	o.result.Unmet = o.result.Unmet || o.suspicion.Remaining(o.now) <= 0
}

// Split divides the active children of the last view by the facts that are known now. Those in come were
// created and are not in the cache yet, and those in leave were deleted and are unchanged in the cache. Others
// that are being deleted or gone are left out. All the rest stay, in their newest known state. The list stay
// may be the slice children itself.
func (l *Ledger[C]) Split(children []C) (stay, come, leave []C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 && l.list.version == "" {
		return children, nil, nil
	}
	for _, c := range children {
		if object.IsNil(c) {
			continue
		}
		var e entry[C]
		if known := l.entries[idOf(c)]; known != nil {
			e = *known
		}
		switch answer := e.fact.answer; {
		case e.call == deleted: // first, because a list of the same pass may have lacked it before its deletion was recorded
			leave = append(leave, c)
		case e.fact.gone > 0, answer.isMissing(), answer.there && answer.child.GetDeletionTimestamp() != nil, e.fact.isEmpty() && l.list.excludes(c):
		case e.call == created:
			come = append(come, c)
		case answer.there: // an answer of this pass, such as to a change
			stay = append(stay, answer.child)
		default:
			stay = append(stay, c)
		}
	}
	return stay, come, leave
}

// isNeeded reports whether the fact in an entry changes the view, so that a pass must look whether the cache shows
// it, even if no event has arrived.
func (l *Ledger[C]) isNeeded(e *entry[C]) bool {
	return e.fact.gone == 0 && !e.fact.answer.isMissing() || e.shown == l.viewed
}

// RequeueAfter returns the time to wait before the next pass if no event arrives, or 0 if the view is the same as
// the cache. A created child brings its event, so the wait for one ends only after Patience. A clock that was
// set back makes no wait longer.
func (l *Ledger[C]) RequeueAfter(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := l.hidden
	for _, e := range l.entries {
		// A list has shown web-2, and the watch is broken. When web-2 ends, no event says so.
		switch late := now.Sub(e.since) > l.patience(); {
		case e.call != none && late, e.call != created && !e.fact.isEmpty() && l.isNeeded(e):
			needed = true
		}
	}
	if !needed {
		return l.waitsFor(now)
	}
	return max(l.suspicion.Remaining(now), min(requeueInterval, l.patience()))
}

// Awaited returns the calls that were recorded with Created or Deleted and that the cache does not show yet: the
// names of the created children and the UIDs of the deleted ones. Both slices are sorted, and the caller owns them.
func (l *Ledger[C]) Awaited() (creations []string, deletions []types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.entries {
		switch e.call {
		case created:
			creations = append(creations, e.fact.answer.child.GetName())
		case deleted:
			deletions = append(deletions, id)
		case none:
		}
	}
	slices.Sort(creations)
	slices.Sort(deletions)
	return creations, deletions
}

// Waits returns the maximum time to wait until the cache shows all calls that were recorded with Created and
// Deleted. It is 0 if the cache shows them, or if that time has passed.
func (l *Ledger[C]) Waits(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waitsFor(now)
}

func (l *Ledger[C]) waitsFor(now time.Time) (longest time.Duration) {
	for _, e := range l.entries {
		if left := l.patience() - now.Sub(e.since); e.call != none && left >= 0 {
			longest = max(longest, left+1) // one nanosecond more, so that Patience is exceeded after the wait
		}
	}
	return longest
}
