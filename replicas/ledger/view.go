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
	// Version is a resourceVersion. Children includes all changes up to this resourceVersion. Read Version
	// before Children, so that Children is at least as new. If the version is unknown, Version is "".
	Version string
	// Newest is the highest resourceVersion in the events of all children, or "" if it is unknown. Newest
	// is used if Version is unknown and a known child is missing from the cache. If Newest is higher than
	// the child's resourceVersion, the cache seems to be newer than the child.
	Newest string
	// Children lists the owner's children and the orphans. It may also contain children of other owners.
	Children []C
	// Selector is the owner's selector. If the selector changes, the Ledger forgets its facts, because
	// earlier lists were made with another selector.
	Selector labels.Selector
	Rules    Rules[C]
}

// check returns an error if a snapshot cannot be used.
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
	// The function Ours reports whether the owner controls a child. The function MayCount reports whether a
	// child can count as a replica. MayCount must return false for an object with another controller, and
	// for an object that a list with the owner's selector does not contain. The function Active returns
	// false for a child that is finished or being deleted, and true for any other child.
	Ours, MayCount, Active func(C) bool
}

// RulesOf returns the rules for an owner of the given kind. The owner's children are the objects that the
// owner controls. An object can count as a replica if it matches the selector and no other owner controls
// the object. If the owner is in a namespace, only children in the same namespace count. If the selector is
// nil, no child counts. If one of the parameters owner and active is nil, the rules are incomplete, and
// View returns an error.
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

// Holder classifies the object c, and reports whether c is a child of the owner. If c or one of the rules is
// nil, the result is OtherObject and false.
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

// thatMayCount returns the children for which MayCount returns true.
func (r Rules[C]) thatMayCount(children []C) []C {
	return slices.DeleteFunc(slices.Clone(children), func(c C) bool { return !r.MayCount(c) })
}

// A View contains the children in their newest known state.
type View[C metav1.Object] struct {
	// Children first lists the children in the cache, updated with newer facts. The children that are
	// missing from the cache follow at the end of the list. If the Ledger contains no facts, Children is
	// the same slice as Snapshot.Children.
	Children []C
	// Stale is true if the children must be listed live before any child is created or deleted.
	Stale bool
	// Unmet is true if the view may omit existing children or contain children that are gone. In this
	// case, list the children live even if the plan is empty, because the number of children may be right
	// by chance.
	Unmet bool
	// Waits is the maximum time to wait until the cache shows all calls that were recorded with Created
	// and Deleted. Waits is 0 if the cache already shows these calls. If the cache takes longer than
	// Ledger.Patience, the view is stale.
	Waits time.Duration
}

// View applies the facts to the children in the cache, and drops the facts that the cache shows. The
// parameter start is the Moment at which the caller began to read the cache. View returns an error if a
// child or a rule is nil, or if start is 0.
func (l *Ledger[C]) View(start Moment, s Snapshot[C], now time.Time) (View[C], error) {
	if err := s.check(start); err != nil {
		return View[C]{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setClock(now)
	l.checkCache(s)
	l.viewed, l.hidden, l.inPass = start, false, true
	l.cached, l.known = s.Children, nil
	v := View[C]{Children: s.Children, Stale: l.stale}
	if resourceversion.Reached(s.Version, l.list.version) {
		l.forgetList()
	}
	if len(l.children) > 0 || l.list.version != "" {
		o := overlay[C]{l, s, start, now, v}
		o.apply()
		v = o.view
	}
	if len(l.children) == 0 {
		l.children = nil
	}
	l.resolve(v.Children, s.Rules)
	l.forgetSent(v.Children)
	return v, nil
}

// forgetList is called when the cache is at least as new as the last live list, and forgets this list. If a
// fact about a listed child has no numeric version, forgetList also forgets the fact. However, the fact is
// kept if its observation began after the list call, or if the fact says that the child is gone.
func (l *Ledger[C]) forgetList() {
	for id := range l.list.children {
		if e := l.children[id]; e != nil && !isNumber(e.fact.answer.version) && e.fact.gone == 0 && e.fact.answer.at <= l.list.start {
			e.fact = fact[C]{}
			l.tidy(id, e)
		}
	}
	l.list = bar{}
}

// checkCache drops all facts about children if the cache went back to an older version, or if the selector
// has changed.
func (l *Ledger[C]) checkCache(s Snapshot[C]) {
	hasFacts := l.list.version != "" || len(l.children) > 0
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
	cache Snapshot[C]
	start Moment
	now   time.Time
	view  View[C]
}

func (o *overlay[C]) apply() {
	for _, c := range o.cache.Children {
		if e := o.children[idOf(c)]; e != nil {
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
		if e.fact.gone == 0 {
			o.markIfLate(e.since)
			children = append(children, e.fact.answer.child)
		}
	}
	o.view.Children = children
	o.suspect(lacking)
	o.view.Waits = o.waitsFor(o.now)
	for _, e := range o.children {
		if e.call != none {
			o.markIfLate(e.since)
		}
	}
}

// markIfLate is called if the Ledger has recorded a fact, a list or a call that the cache does not reflect
// yet. The parameter since is the time of the record. If this time is longer ago than Patience, markIfLate
// sets Stale and Unmet in the view.
func (o *overlay[C]) markIfLate(since time.Time) {
	if o.now.Sub(since) > o.patience() {
		o.view.Stale, o.view.Unmet = true, true
	}
}

// believe returns a cached child in its newest known state, and whether the child exists.
func (o *overlay[C]) believe(c C) (C, bool) {
	id := idOf(c)
	e := o.children[id]
	if e == nil {
		return c, !o.isBarred(c)
	}
	if !o.cache.Rules.MayCount(c) && (o.isMoot(e) || e.fact.gone > 0 && o.isAged(e)) {
		e.fact = fact[C]{}
	}
	if c.GetDeletionTimestamp() != nil {
		e.call = none
	}
	switch answer := e.fact.answer; {
	case e.fact.gone > 0, answer.isMissing() && !o.isShown(c, answer):
		e.unanswered, e.call = unanswered{}, none
		o.markIfLate(e.since)
		return c, false
	case answer.there && !o.isShown(c, answer):
		o.markIfLate(e.since)
		c = answer.child
	default: // the cache shows the fact
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

// isShown reports whether the cache shows the answer w or a newer state. The parameter c is the child in
// the cache. If w says that a list did not contain c, and c does not match the selector, w proves nothing,
// because no list contains c. isShown then returns true.
func (o *overlay[C]) isShown(c C, answer answer[C]) bool {
	switch {
	case !answer.there && !o.cache.Rules.MayCount(c):
		return true
	case answer.at > o.start: // the answer came after the cache was read
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

// isBarred reports whether the last list shows that a cached child is gone or no longer a replica.
func (o *overlay[C]) isBarred(c C) bool {
	if !o.list.excludes(c) || !o.cache.Rules.MayCount(c) {
		return false
	}
	o.hidden = true
	o.markIfLate(o.list.since)
	return true
}

// lasts reports whether the delete call may still take effect on the child c.
func (d unanswered) lasts(c metav1.Object) bool {
	version := c.GetResourceVersion()
	return d.any() && c.GetDeletionTimestamp() == nil &&
		(d.version == "" || d.version == version || resourceversion.Older(version, d.version))
}

// lacking returns the entries of existing children that are missing from the cache. The entries are sorted
// by the start of their observations. If the cache is at least as new as a fact, lacking drops the fact. A
// fact that is older than Patience is also dropped if no list can confirm the fact.
func (o *overlay[C]) lacking() (lacking []*entry[C]) {
	for id, e := range o.children {
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
		case !o.isAged(e):
		case !isNumber(answer.version): // a list would prove nothing
			e.fact = fact[C]{}
		default: // after a watch has stalled and resumed, the cache may still show the child
			o.view.Stale = true
		}
		if e.call = none; !o.stale { // the child is gone
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

// isMoot reports whether a fact is older than Patience and cannot be confirmed by a list. If a child does
// not match the selector, no list contains the child.
func (o *overlay[C]) isMoot(e *entry[C]) bool {
	answer := e.fact.answer
	return o.isAged(e) && answer.there && !o.cache.Rules.MayCount(answer.child)
}

// isSuperseded reports whether the cache is at least as new as e.fact. The parameter e is the entry of a
// child that is missing from the cache. If the cache has reached the resourceVersion in e.fact, the result
// is true. The result is also true if the cache has contained the child at any earlier time. If the fact
// says that the child exists, and the cache has a numeric resourceVersion, only the two resourceVersions
// are compared. If the child is gone and the last list also shows this, the result is true, because the
// fact is no longer needed.
func (o *overlay[C]) isSuperseded(id types.UID, e *entry[C]) bool {
	answer := e.fact.answer
	switch isGone := e.fact.gone > 0 || answer.isMissing(); {
	case e.fact.isEmpty():
		return true
	case e.fact.gone == 0 && answer.at >= o.start: // the answer came after the cache was read
		return false
	case isGone && o.list.hides(id) && (answer.at == 0 || isNumber(answer.version)) && o.list.start >= max(answer.at, e.fact.gone):
		return true
	}
	if answer.there && isNumber(o.cache.Version) {
		return resourceversion.Reached(o.cache.Version, answer.version)
	}
	return e.shown > 0 || resourceversion.Reached(o.cache.Version, answer.version)
}

// byName returns the given entries in a map. The keys are the names of the entries' children. Names are
// unique on the server, so the older of two children with the same name is gone.
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

// newer(a, b) compares the entries of two children with the same name. It returns the entry of the newer
// child, and records that the older child is gone.
func (o *overlay[C]) newer(a, b *entry[C]) *entry[C] {
	v, w := a.fact.answer, b.fact.answer
	if order, err := resourceversion.Compare(v.version, w.version); err == nil && order > 0 || err != nil && v.at > w.at {
		a, b = b, a
		w = v
	}
	a.fact.gone, a.call = w.at, none
	return b
}

// isNewest reports whether the cached child c still exists. If a newer child has the same name, c is
// gone. The parameter other is the entry of another child that has the same name and is missing from the
// cache. If the Ledger contains no entry of this kind, the parameter is nil. If the versions do not show
// which of the two children is newer, the view is stale.
func (o *overlay[C]) isNewest(c C, other *entry[C]) bool {
	if other == nil || other.fact.gone > 0 {
		return true
	}
	answer := other.fact.answer
	switch order, err := resourceversion.Compare(c.GetResourceVersion(), answer.version); {
	case err != nil || order == 0:
		o.view.Stale, o.view.Unmet = true, true
	case order < 0:
		return false
	default:
		other.fact.gone, other.call = answer.at, none
	}
	return true
}

// firstSuspicion is the first delay before View.Unmet is set by the method suspect. Each later delay is
// twice as long as the one before it, up to lastSuspicion.
const firstSuspicion, lastSuspicion = 5 * time.Second, 5 * time.Minute

// requeueInterval is the time between two passes while the cache does not show all facts. If a watch breaks and
// the cache lists again, the cache may show new facts without an event that causes a pass.
const requeueInterval = 5 * time.Second

// suspect is needed for a cache with an unknown version. The parameter lacking contains the entries of
// existing children that are missing from the cache. If Snapshot.Newest is higher than the resourceVersion
// of one of these children, the cache seems to be newer than the child. In this case, suspect sets
// View.Stale immediately, and sets View.Unmet after a delay. The delay is needed because Newest may come
// from the events of another watch.
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
	o.view.Stale = true
	o.view.Unmet = o.view.Unmet || o.suspicion.Remaining(o.now) <= 0
}

// Split divides the active children of the last view into three lists, according to the facts that are
// known now. The second list contains each child that was created but is not in the cache yet. The third
// list contains each child that was deleted but is unchanged in the cache. Other children that are being
// deleted or are gone are omitted. All remaining children are in the first list in their newest known
// state. This list may be the same slice as children.
func (l *Ledger[C]) Split(children []C) (stay, come, leave []C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.children) == 0 && l.list.version == "" {
		return children, nil, nil
	}
	for _, c := range children {
		if object.IsNil(c) {
			continue
		}
		var e entry[C]
		if known := l.children[idOf(c)]; known != nil {
			e = *known
		}
		switch answer := e.fact.answer; {
		case e.call == deleted: // the deletion was noted last
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

// isNeeded reports whether the fact in an entry changes the view. The method RequeueAfter uses the result to
// decide whether another pass is needed. In another pass, a fact that the cache shows by then is dropped,
// even if no event has arrived.
func (l *Ledger[C]) isNeeded(e *entry[C]) bool {
	return e.fact.gone == 0 && !e.fact.answer.isMissing() || e.shown == l.viewed
}

// RequeueAfter returns the time to wait before the next pass if no event arrives. If the view is the same as the
// cache, the result is 0. Setting the clock back does not make the wait longer. The creation of a child
// causes an event. Therefore, for a created child, the wait ends only when Patience has passed.
func (l *Ledger[C]) RequeueAfter(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := l.hidden
	for _, e := range l.children {
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

// Awaited returns the calls that were recorded with Created or Deleted and that the cache does not show
// yet. The first result contains the names of the created children. The second result contains the UIDs of
// the deleted children. Both slices are sorted, and the caller owns them.
func (l *Ledger[C]) Awaited() (creations []string, deletions []types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.children {
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

// Waits returns the maximum time to wait until the cache shows all calls that were recorded with Created
// and Deleted. If the cache already shows all these calls, or if the maximum time has passed, the result is
// 0.
func (l *Ledger[C]) Waits(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waitsFor(now)
}

func (l *Ledger[C]) waitsFor(now time.Time) (longest time.Duration) {
	for _, e := range l.children {
		if left := l.patience() - now.Sub(e.since); e.call != none && left >= 0 {
			longest = max(longest, left+1) // one nanosecond more, so that Patience is exceeded after the wait
		}
	}
	return longest
}
