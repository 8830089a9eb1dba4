// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
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

// proven is what is known of an owner's children although the cache does not show
// it: what a live list, or the answer to a call, has proven is laid over each view
// of the cache until the cache shows it too. Without it the next event would plan
// from the same old cache. The zero value knows nothing. Passes and event handlers
// use it at the same time.
type proven[C Object] struct {
	mu sync.Mutex
	// present are the owner's children, and orphans, as the list had them that the
	// cache does not have, or only in an older resourceversion.
	present []C
	// absent are children that the cache has, and that are no replicas of the owner
	// any more, nor may be, with the version of the list that says so, if it was one.
	absent map[types.UID]string
	list   bar
	since  time.Time // the last list, or the last answer
	// passed is a wait that begins when events of other children show that the cache
	// has passed by what is present, and does not have it. Then a list is worthwhile
	// even if nothing follows from it.
	passed  hold
	unshown bool // it may, as how far it has come is not known
	// restoredFrom is how far the cache was when a later list was older: the server
	// was restored from a backup. Until the cache goes back it proves nothing.
	restoredFrom string
	restored     bool            // the server was, since the last list: nothing is proven
	read         string          // how far the cache had come in the last pass
	selector     labels.Selector // of the last pass
	// meanwhile are children that left the cache since the pass under way began: what
	// a list or a call shows of them may be older than that. It is nil between passes.
	meanwhile sets.Set[types.UID]
}

// A bar is the last live list. A child that is older, and that the list did not show, is
// gone or another's: a watch that hung and goes on shows the dead once more.
type bar struct {
	version  string
	children sets.Set[types.UID]
}

func (b bar) excludes(c metav1.Object) bool {
	return resourceversion.Older(c.GetResourceVersion(), b.version) && !b.children.Has(object.ID(c))
}

// A progress tells how far a cache has come: read is up to where it shows everything, ""
// if that is not known, and newest the newest version that an event had.
type progress struct{ read, newest string }

// over lays what is proven over a view of the cache; mayCount tells which children may
// be replicas of the owner. If that has been necessary for longer than patience, the
// proof is no longer good, since what changed meanwhile is not known: then the view is
// old, and so is the cache, which is the other view. If the cache seems to have passed by
// what is present, the view is old at once, and after some seconds passed is true too.
func (v *proven[C]) over(cached []C, mayCount func(C) bool, cache progress, now time.Time, patience time.Duration) (view, other []C, old, passed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unshown = false
	if resourceversion.Older(cache.read, v.read) && v.restoredFrom == "" && (v.any() || v.list.version != "") {
		v.forget()
	}
	if v.read = cache.read; v.restored {
		return cached, nil, true, false
	}
	if v.restoredFrom != "" {
		if !resourceversion.Older(cache.read, v.restoredFrom) {
			return cached, nil, true, false
		}
		v.restoredFrom = ""
	}
	v.reached(cache.read)
	if !v.any() && v.list.version == "" {
		return cached, nil, false, false
	}
	known := v.confirm(cached, mayCount)
	if !v.any() {
		return cached, nil, false, false
	}
	view, namesakes := v.lay(cached, known)
	isPassed := v.isPassed(cache, known, now)
	passed = isPassed && v.passed.remaining(now, 0) <= 0
	if namesakes || passed || now.Sub(v.since) >= patience {
		other = append([]C{}, cached...) // never nil
	}
	return view, other, isPassed || other != nil, passed
}

func (v *proven[C]) any() bool { return len(v.present)+len(v.absent) > 0 }

// reached drops what a cache shows that has come so far.
func (v *proven[C]) reached(read string) {
	v.present = slices.DeleteFunc(v.present, func(c C) bool { return resourceversion.Reached(read, c.GetResourceVersion()) })
	if resourceversion.Reached(read, v.list.version) {
		v.present = slices.DeleteFunc(v.present, func(c C) bool { return v.list.children.Has(object.ID(c)) })
		v.list = bar{}
		maps.DeleteFunc(v.absent, func(_ types.UID, listed string) bool { return listed != "" })
	}
}

// confirm drops what the cache shows, adds what the list did not show, and returns the
// cached children by their ids. A child that is absent may be in the cache for ever: as
// another's, or to be released.
func (v *proven[C]) confirm(cached []C, mayCount func(C) bool) map[types.UID]C {
	known := make(map[types.UID]C, len(cached))
	for _, c := range cached {
		known[object.ID(c)] = c
		if v.list.excludes(c) && mayCount(c) {
			v.add(object.ID(c), v.list.version)
		}
	}
	v.present = slices.DeleteFunc(v.present, func(c C) bool {
		shown, ok := known[object.ID(c)]
		return ok && !resourceversion.Older(shown.GetResourceVersion(), c.GetResourceVersion())
	})
	for id, listed := range v.absent {
		if c, ok := known[id]; !ok || !mayCount(c) || resourceversion.Older(listed, c.GetResourceVersion()) {
			delete(v.absent, id)
		}
	}
	return known
}

// lay returns the cached children with what is proven laid over them. A server has one
// object of a name: of two the older one is gone. namesakes tells that there are two and
// that nobody knows which.
func (v *proven[C]) lay(cached []C, known map[types.UID]C) (view []C, namesakes bool) {
	view = make([]C, 0, len(cached)+len(v.present))
	newer, named := make(map[types.UID]C, len(v.present)), make(map[types.NamespacedName]C, len(v.present))
	for _, c := range v.present {
		newer[object.ID(c)], named[nameOf(c)] = c, c
	}
	for _, c := range cached {
		id := object.ID(c)
		if _, ok := v.absent[id]; ok {
			continue
		}
		if n, ok := newer[id]; ok {
			c = n
		} else if n, ok := named[nameOf(c)]; ok {
			switch was, is := c.GetResourceVersion(), n.GetResourceVersion(); {
			case resourceversion.Older(was, is):
				continue
			case resourceversion.Older(is, was):
				v.drop(object.ID(n))
			default:
				namesakes = true
			}
		}
		view = append(view, c)
	}
	for _, c := range v.present {
		if _, ok := known[object.ID(c)]; !ok {
			view = append(view, c)
		}
	}
	return view, namesakes
}

// isPassed reports whether the cache seems to have passed by something that is present.
// The events may be those of another watch, so that is no proof.
func (v *proven[C]) isPassed(cache progress, known map[types.UID]C, now time.Time) bool {
	if cache.read != "" {
		return false
	}
	passed := false
	for _, c := range v.present {
		if _, shown := known[object.ID(c)]; !shown {
			v.unshown = true
			passed = passed || resourceversion.Older(c.GetResourceVersion(), cache.newest)
		}
	}
	if passed && v.passed.since.IsZero() {
		v.passed.double(now, passedFirst, passedLast)
	}
	return passed
}

// passing notes that a pass begins, and ended that it is over.
func (v *proven[C]) passing() (ended func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.meanwhile = sets.New[types.UID]()
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.meanwhile = nil
	}
}

// listed replaces what is proven by a live list, of which live are the owner's
// children and the orphans that match; cached are those that the cache has. It had
// come as far as read before the list began. It reports whether the list is older
// than that.
func (v *proven[C]) listed(live []C, listVersion string, cached []C, read string, now time.Time) (restored bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.since, v.passed.since = now, time.Time{}
	v.present, v.absent, v.restoredFrom, v.restored = nil, nil, "", false
	v.list = bar{listVersion, make(sets.Set[types.UID], len(live))}
	shown := make(map[types.UID]C, len(cached))
	for _, c := range cached {
		shown[object.ID(c)] = c
	}
	for _, c := range live {
		id := object.ID(c)
		v.list.children.Insert(id)
		was, ok := shown[id]
		if (!ok || resourceversion.Older(was.GetResourceVersion(), c.GetResourceVersion())) && !v.meanwhile.Has(id) {
			v.present = append(v.present, c)
		}
		delete(shown, id)
	}
	for id := range shown {
		v.add(id, listVersion)
	}
	if len(v.present) == 0 {
		v.passed = hold{}
	}
	if restored = resourceversion.Older(listVersion, read); restored {
		v.restoredFrom = read
	}
	return restored
}

func (v *proven[C]) add(absent types.UID, listed string) {
	if v.absent == nil {
		v.absent = map[types.UID]string{}
	}
	v.absent[absent] = listed
}

// gone notes that a child does not exist any more, though the cache, or the list,
// has it.
func (v *proven[C]) gone(id types.UID, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.learn(now)
	v.drop(id)
	v.add(id, "")
}

// patched notes what became of a child that is present.
func (v *proven[C]) patched(c C) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, p := range v.present {
		if object.ID(p) == object.ID(c) {
			v.present[i] = c
		}
	}
}

// found notes a child that exists, though the cache may not have it, unless it has
// left the cache meanwhile.
func (v *proven[C]) found(c C, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.meanwhile.Has(object.ID(c)) {
		return
	}
	v.learn(now)
	v.present = slices.DeleteFunc(v.present, func(p C) bool { return object.ID(p) == object.ID(c) || nameOf(p) == nameOf(c) })
	v.present = append(v.present, c)
}

func (v *proven[C]) drop(id types.UID) {
	v.present = slices.DeleteFunc(v.present, func(c C) bool { return object.ID(c) == id })
}

// learn notes that something is proven now that the last list does not know of.
// What was proven before grows no younger by that.
func (v *proven[C]) learn(now time.Time) {
	if !v.any() {
		v.since, v.passed = now, hold{}
	}
}

// void notes that the server was restored from a backup: what was proven before is no
// proof, and the cache may show what was after it.
func (v *proven[C]) void() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forget()
}

func (v *proven[C]) forget() { v.present, v.absent, v.list, v.restored = nil, nil, bar{}, true }

// selectedBy notes what selects the owner's children by now. A list by another
// selector is no proof, as it does not show all of them.
func (v *proven[C]) selectedBy(selector labels.Selector) {
	if object.IsNil(selector) { // it will be refused
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if (v.any() || v.list.version != "") && v.selector != nil && v.selector.String() != selector.String() {
		v.forget()
	}
	v.selector = selector
}

// left notes that a child left the cache, or the server.
func (v *proven[C]) left(id types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(id)
	if v.meanwhile != nil {
		v.meanwhile.Insert(id)
	}
}

// remaining is how long what is proven stays good, 0 if nothing is needed. What is good
// no longer is looked at as often: a view needs no list if nothing follows from it. If the
// cache does not tell how far it has come, an event of another child may tell meanwhile
// that it has passed by what is present.
func (v *proven[C]) remaining(now time.Time, patience time.Duration) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.any() {
		return 0
	}
	left := patience - now.Sub(v.since)
	if left <= 0 {
		left = patience
	}
	if v.unshown {
		left = min(left, max(v.passed.remaining(now, 0), passedFirst))
	}
	return left
}
