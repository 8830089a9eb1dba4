// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

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
	since  time.Time // the last list, or the last answer
	bar    string    // the version of that list: a cache that has come so far shows it all
	// restoredFrom is how far the cache was when a later list was older: the server
	// was restored from a backup. Until the cache goes back it proves nothing.
	restoredFrom string
	restored     bool            // the server was, since the last list: nothing is proven
	selector     labels.Selector // of the last pass
	// meanwhile are children that left the cache since the pass under way began: what
	// a list or a call shows of them may be older than that. It is nil between passes.
	meanwhile sets.Set[types.UID]
}

// over lays what is proven over a view of the cache, which has come as far as
// read; mayCount tells which children may be replicas of the owner. If that has
// been necessary for longer than patience, the proof is no longer good, since what
// changed meanwhile is not known: then the view is old, and so is the cache, which is
// the other view.
func (v *proven[C]) over(cached []C, mayCount func(C) bool, read string, now time.Time, patience time.Duration) (view, other []C, old bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.restored {
		return cached, nil, true
	}
	if v.restoredFrom != "" {
		if !resourceversion.Older(read, v.restoredFrom) {
			return cached, nil, true
		}
		v.restoredFrom = ""
	}
	if v.bar != "" && resourceversion.Reached(read, v.bar) {
		v.present, v.bar = nil, ""
		v.absent = nil
	}
	if len(v.present) == 0 && len(v.absent) == 0 {
		return cached, nil, false
	}
	known := v.confirm(cached, mayCount)
	switch {
	case len(v.present) == 0 && len(v.absent) == 0:
		return cached, nil, false
	case now.Sub(v.since) >= patience:
		return v.lay(cached, known), append([]C{}, cached...), true // never nil
	}
	return v.lay(cached, known), nil, false
}

// confirm drops what the cache shows, and returns the cached children by their
// ids. A child that is absent may be in the cache for ever: as another's, or to be
// released.
func (v *proven[C]) confirm(cached []C, mayCount func(C) bool) map[types.UID]C {
	known := make(map[types.UID]C, len(cached))
	for _, c := range cached {
		known[object.ID(c)] = c
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

func (v *proven[C]) lay(cached []C, known map[types.UID]C) []C {
	view := make([]C, 0, len(cached)+len(v.present))
	newer := make(map[types.UID]C, len(v.present))
	for _, c := range v.present {
		newer[object.ID(c)] = c
	}
	for _, c := range cached {
		id := object.ID(c)
		if _, ok := v.absent[id]; ok {
			continue
		}
		if n, ok := newer[id]; ok {
			c = n
		}
		view = append(view, c)
	}
	for _, c := range v.present {
		if _, ok := known[object.ID(c)]; !ok {
			view = append(view, c)
		}
	}
	return view
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
	v.since, v.bar = now, listVersion
	v.present, v.absent, v.restoredFrom, v.restored = nil, nil, "", false
	shown := make(map[types.UID]C, len(cached))
	for _, c := range cached {
		shown[object.ID(c)] = c
	}
	for _, c := range live {
		id := object.ID(c)
		was, ok := shown[id]
		if (!ok || resourceversion.Older(was.GetResourceVersion(), c.GetResourceVersion())) && !v.meanwhile.Has(id) {
			v.present = append(v.present, c)
		}
		delete(shown, id)
	}
	for id := range shown {
		v.add(id, listVersion)
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

// adopted notes what became of an orphan that the list showed.
func (v *proven[C]) adopted(c C) {
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
	v.drop(object.ID(c))
	v.present = append(v.present, c)
}

func (v *proven[C]) drop(id types.UID) {
	v.present = slices.DeleteFunc(v.present, func(c C) bool { return object.ID(c) == id })
}

// learn notes that something is proven now that the last list does not know of.
// What was proven before grows no younger by that.
func (v *proven[C]) learn(now time.Time) {
	if len(v.present) == 0 && len(v.absent) == 0 {
		v.since = now
	}
	v.bar = ""
}

// void notes that the server was restored from a backup: what was proven before is no
// proof, and the cache may show what was after it.
func (v *proven[C]) void() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forget()
}

func (v *proven[C]) forget() { v.present, v.absent, v.bar, v.restored = nil, nil, "", true }

// selectedBy notes what selects the owner's children by now. A list by another
// selector is no proof, as it does not show all of them.
func (v *proven[C]) selectedBy(selector labels.Selector) {
	if object.IsNil(selector) { // it will be refused
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.present)+len(v.absent) > 0 && v.selector != nil && v.selector.String() != selector.String() {
		v.forget()
	}
	v.selector = selector
}

// left notes that a child left the cache.
func (v *proven[C]) left(id types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(id)
	if v.meanwhile != nil {
		v.meanwhile.Insert(id)
	}
}

// remaining is how long what is proven stays good, 0 if nothing is needed. What is
// good no longer is looked at as often: a view of which nothing follows needs no
// list.
func (v *proven[C]) remaining(now time.Time, patience time.Duration) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.present) == 0 && len(v.absent) == 0 {
		return 0
	}
	if left := patience - now.Sub(v.since); left > 0 {
		return left
	}
	return patience
}
