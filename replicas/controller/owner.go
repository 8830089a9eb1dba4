// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// incarnationKept is how long an incarnation of an owner without a pass is
// remembered, once another one of its name has one: nobody may ever tell that
// the first is gone.
const incarnationKept = time.Hour

// ownerState is what is remembered of an owner between passes. It belongs to the
// pass under way, but for known, wrote and ready, which have locks of their own.
type ownerState[C Object] struct {
	uid        types.UID
	generation int64
	seen       time.Time // the last pass
	left       bool      // the owner has left the cache: only what is in flight is still of use

	known *ledger.Ledger[C] // outlives the rest, as an owner may leave a cache that is filtered, and come back
	wrote ownWrite
	owner backoff.Hold // until the next look at the owner in the cache or, after some seconds, at the server
	ready readySince
	// term and ownerTerm are the last ones in which a consistent look at the children was
	// made, and in which the owner was read.
	term, ownerTerm int
	active          int          // children after the last pass that was free to change their number
	childLeft       backoff.Hold // until children that leave have the owner read again
	holds           holds

	perGeneration[C]
	status *differing
}

// perGeneration is what a new generation of the owner makes void.
type perGeneration[C Object] struct {
	round   round
	behind  bool   // the last deletions found the cache behind
	refused string // the text of the last event about this generation that is refused
	// aside are orphans that could not be adopted; see pass.toTry.
	aside map[types.UID]*aside
}

// differing is a status that the server does not store as it was sent, as it drops
// a field: the same one need not be sent again.
type differing struct{ sent, stored any }

// nothingLeft drops what held back creations or deletions that are needed no more: the next
// ones start anew. What has another cause goes on: a namespace that ends, and what the server
// said of how long to wait.
func (s *ownerState[C]) nothingLeft(now time.Time) {
	maps.DeleteFunc(s.holds, func(k holdKey, h *hold) bool {
		switch k.Reason {
		case QuotaFull, Conflict, ConflictAgain:
			return true
		case NamespaceGoing, RetryAfter, CreationFailed, DeletionRetryAfter, DeletionFailed:
			return h.remaining(now, 0) <= 0
		}
		return false
	})
	s.behind = false
}

// owners keeps the state of every owner by its name and UID: two of one name may
// live at the same time, in two clusters.
type owners[C Object] struct {
	patience func() time.Duration // of what is known of one owner

	mu sync.Mutex
	m  map[types.NamespacedName][]*ownerState[C]
	// passing are the names of owners that have a pass under way.
	passing sets.Set[types.NamespacedName]
	// left are the names of owners that have left the cache. Each pass looks at one of them.
	left []types.NamespacedName
}

// enter notes that a pass for an owner begins, and reports whether none is under way.
func (o *owners[C]) enter(name types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.passing.Has(name) {
		return false
	}
	if o.passing == nil {
		o.passing = sets.New[types.NamespacedName]()
	}
	o.passing.Insert(name)
	return true
}

func (o *owners[C]) exit(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.passing.Delete(name)
}

// of returns the state of an owner. What was remembered of another generation is
// dropped. idle are the UIDs of other incarnations that had no pass for so long
// that they may be forgotten; a zero now is no pass, and asks for none.
func (o *owners[C]) of(key expectations.Key, generation int64, now time.Time) (s *ownerState[C], idle []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = o.find(key)
	if s == nil || s.left {
		s = o.begin(key, s)
	}
	if s.generation != generation {
		s.generation, s.perGeneration = generation, perGeneration[C]{}
		maps.DeleteFunc(s.holds, func(k holdKey, _ *hold) bool { return k.Reason.row().ofSpec })
	}
	if now.IsZero() {
		return s, nil
	}
	s.seen = now
	o.sweepLeft(now)
	for _, other := range o.m[key.NamespacedName] {
		if other.uid != "" && now.Sub(other.seen) > incarnationKept && other.known.Waits(now) == 0 {
			idle = append(idle, other.uid)
		}
	}
	return s, idle
}

// begin returns a new state in place of that of an owner that had left the cache, or of
// none. Requests without an answer stay.
func (o *owners[C]) begin(key expectations.Key, before *ownerState[C]) *ownerState[C] {
	s := &ownerState[C]{uid: key.UID, known: &ledger.Ledger[C]{Patience: o.patience()}}
	if before != nil {
		s.known = before.known
		s.known.Forget()
	}
	if o.m == nil {
		o.m = map[types.NamespacedName][]*ownerState[C]{}
	}
	others := slices.DeleteFunc(o.m[key.NamespacedName], func(other *ownerState[C]) bool { return other == before })
	o.m[key.NamespacedName] = append(others, s)
	return s
}

// get returns the state of an owner that is in the cache, or nil.
func (o *owners[C]) get(key expectations.Key) *ownerState[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.find(key); s != nil && !s.left {
		return s
	}
	return nil
}

// awaitWrite notes that a pass begins: should it not see its owner's last status
// write, the update that shows it is worth another one.
func (o *owners[C]) awaitWrite(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.m[name] {
		s.wrote.await()
	}
}

// isKnownOld reports whether a call has shown a newer owner than the cache has: a pass goes by
// that, and need not wait for the cache.
func (o *owners[C]) isKnownOld(name types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.m[name], func(s *ownerState[C]) bool { return !s.left && s.known.Owner() != (ledger.Owner{}) })
}

// Ledger returns the ledger of an owner, and Ledgers those of all: see package inside.
func (o *owners[C]) Ledger(key expectations.Key) *ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.find(key)
	if s == nil || s.left {
		s = o.begin(key, s)
	}
	return s.known
}

// Ledgers leaves out owners that have left the cache.
func (o *owners[C]) Ledgers() map[expectations.Key]*ledger.Ledger[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[expectations.Key]*ledger.Ledger[C]{}
	for name, states := range o.m {
		for _, s := range states {
			if !s.left {
				all[expectations.Key{NamespacedName: name, UID: s.uid}] = s.known
			}
		}
	}
	return all
}

func (o *owners[C]) find(key expectations.Key) *ownerState[C] {
	for _, s := range o.m[key.NamespacedName] {
		if s.uid == key.UID {
			return s
		}
	}
	return nil
}

// forget notes that an owner has left the cache, every incarnation if uid is "".
func (o *owners[C]) forget(key expectations.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.m[key.NamespacedName] {
		if !s.left && (key.UID == "" || s.uid == key.UID) {
			s.left = true
			o.left = append(o.left, key.NamespacedName)
		}
	}
}

// sweepLeft looks at one of the owners that have left the cache, and drops it if no pass has
// followed, and none is under way.
func (o *owners[C]) sweepLeft(now time.Time) {
	if len(o.left) == 0 {
		return
	}
	name := o.left[0]
	o.left = o.left[1:]
	kept := slices.DeleteFunc(o.m[name], func(s *ownerState[C]) bool {
		return s.left && now.Sub(s.seen) > incarnationKept && s.known.Unanswered(now) <= 0
	})
	if len(kept) == 0 {
		delete(o.m, name)
		return
	}
	o.m[name] = kept
	if slices.ContainsFunc(kept, func(s *ownerState[C]) bool { return s.left }) {
		o.left = append(o.left, name)
	}
}

// sweep drops the states of a name that have left the cache and that nothing is in flight
// of. It returns how long it takes until the next one can be dropped, 0 if there is none.
// Only a pass for that name calls it, as what is in flight is the pass's.
func (o *owners[C]) sweep(name types.NamespacedName, now time.Time) (next time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := slices.DeleteFunc(o.m[name], func(s *ownerState[C]) bool {
		if !s.left {
			return false
		}
		remaining := s.known.Unanswered(now)
		if remaining > 0 {
			next = earliest(next, remaining)
		}
		return remaining <= 0
	})
	if len(kept) == 0 {
		delete(o.m, name)
		return 0
	}
	o.m[name] = kept
	return next
}
