// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

// incarnationKept is how long an incarnation of an owner without a pass is
// remembered, once another one of its name has one: nobody may ever tell that
// the first is gone.
const incarnationKept = time.Hour

// ownerState is what is remembered of an owner between passes. It belongs to the
// pass under way, but for proven, wrote, fact and ready, which have locks of their own.
type ownerState[C Object] struct {
	uid        types.UID
	generation int64
	seen       time.Time // the last pass

	proven   proven[C]
	answered answered[C]
	wrote    ownWrite
	fact     ownerFact
	ready    readySince
	old      bool // the cache is known to be old, until a live list
	told     told

	perGeneration[C]
	names   names
	doubted doubts
	strays  strays[C]
	status  *differing
}

// perGeneration is what a new generation of the owner makes void.
type perGeneration[C Object] struct {
	creations, deletions, strange hold
	behind                        bool // the last deletions found the cache behind
	refused                       bool // the event about this generation's spec was sent
	// aside are orphans that could not be adopted; see pass.toTry.
	aside map[types.UID]*aside
}

// told are the states that an event has told of and that last.
type told struct{ adopt, release, list, owner, related, backOff bool }

// nothingLeft drops what held back creations or deletions that are needed no
// more: the next ones start anew.
func (s *ownerState[C]) nothingLeft() {
	s.creations, s.deletions, s.behind = hold{}, hold{}, false
}

// owners keeps the state of every owner by its name and UID: two of one name may
// live at the same time, in two clusters. The zero value is ready to use.
type owners[C Object] struct {
	mu sync.Mutex
	m  map[types.NamespacedName][]*ownerState[C]
}

// of returns the state of an owner. What was remembered of another generation is
// dropped. idle are the UIDs of other incarnations that had no pass for so long
// that they may be forgotten; a zero now is no pass, and asks for none.
func (o *owners[C]) of(key expectations.Key, generation int64, now time.Time) (s *ownerState[C], idle []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = o.find(key)
	if s == nil {
		s = &ownerState[C]{uid: key.UID}
		if o.m == nil {
			o.m = map[types.NamespacedName][]*ownerState[C]{}
		}
		o.m[key.NamespacedName] = append(o.m[key.NamespacedName], s)
	}
	if s.generation != generation {
		s.generation, s.perGeneration = generation, perGeneration[C]{}
	}
	if now.IsZero() {
		return s, nil
	}
	s.seen = now
	for _, other := range o.m[key.NamespacedName] {
		if other.uid != "" && now.Sub(other.seen) > incarnationKept {
			idle = append(idle, other.uid)
		}
	}
	return s, idle
}

// get returns the state of an owner, or nil.
func (o *owners[C]) get(key expectations.Key) *ownerState[C] {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.find(key)
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

func (o *owners[C]) find(key expectations.Key) *ownerState[C] {
	for _, s := range o.m[key.NamespacedName] {
		if s.uid == key.UID {
			return s
		}
	}
	return nil
}

// forget drops the state of an owner, of every incarnation if uid is "".
func (o *owners[C]) forget(key expectations.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := slices.DeleteFunc(o.m[key.NamespacedName], func(s *ownerState[C]) bool { return key.UID == "" || s.uid == key.UID })
	if len(left) > 0 {
		o.m[key.NamespacedName] = left
		return
	}
	delete(o.m, key.NamespacedName)
}
