// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// slowPass is how long a pass may take and still count as one of the workers.
	slowPass = time.Second
	// slowPerWorker is how many passes there may be that do not count, for each
	// worker.
	slowPerWorker = 4
)

// A crew is the workers of a controller: at most workers that count, and
// slowPerWorker times as many that do not.
//
// A pass that takes longer than slowPass does not count any more: another worker
// takes its place, and its own leaves when it ends. What takes so long is, as a
// rule, an admission webhook that hangs, for ten to thirty seconds a call. With a
// fixed number of workers a few such owners keep all others waiting.
//
// A namespace that has such a pass has no more passes under way, of both kinds,
// than there are workers: what comes up meanwhile is put off until one of them
// ends. So a namespace full of such owners leaves the rest to the others. If a
// pass is slow only because the client's rate limit is low, nothing is lost: more
// passes wait for the same limit.
//
// There is no deadline for a pass: the API server has one for each call, and a
// call that is cut off may still take effect.
type crew struct {
	workers int
	running sync.WaitGroup

	mu     sync.Mutex
	slow   int // passes that do not count
	in     map[place]*passes
	putOff map[place]sets.Set[types.NamespacedName]
}

// A place is a namespace, or an owner that is in none.
type place types.NamespacedName

func placeOf(owner types.NamespacedName) place {
	if owner.Namespace == "" {
		return place(owner)
	}
	return place{Namespace: owner.Namespace}
}

// passes are those under way in one place, and how many of them are slow.
type passes struct{ all, slow int }

// A shift is the work of one worker on one owner.
type shift struct {
	crew        *crew
	place       place
	timer       *time.Timer
	slow, ended bool // slow: it does not count
}

func newCrew(workers int) *crew {
	return &crew{workers: workers, in: map[place]*passes{}, putOff: map[place]sets.Set[types.NamespacedName]{}}
}

// start starts a worker.
func (c *crew) start(work func()) { c.running.Go(work) }

// wait waits for all workers to end, those that do not count too.
func (c *crew) wait() { c.running.Wait() }

// begin begins a pass, unless its namespace has too many: then nil is returned, and
// the owner is among those that the end of one of these returns. Once the pass
// does not count any more, replace is called.
func (c *crew) begin(key types.NamespacedName, replace func()) *shift {
	c.mu.Lock()
	defer c.mu.Unlock()
	place := placeOf(key)
	here := c.in[place]
	if here == nil {
		here = &passes{}
		c.in[place] = here
	}
	if here.slow > 0 && here.all >= c.workers {
		c.postpone(key)
		return nil
	}
	here.all++
	s := &shift{crew: c, place: place}
	s.timer = time.AfterFunc(slowPass, func() { s.takesLong(replace) })
	return s
}

func (c *crew) postpone(key types.NamespacedName) {
	place := placeOf(key)
	if c.putOff[place] == nil {
		c.putOff[place] = sets.New[types.NamespacedName]()
	}
	c.putOff[place].Insert(key)
}

// takesLong makes a pass that is still under way one that does not count, as soon
// as there is room for one more.
func (s *shift) takesLong(replace func()) {
	c := s.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ended {
		return
	}
	if c.slow >= slowPerWorker*c.workers {
		s.timer.Reset(slowPass)
		return
	}
	c.slow++
	c.in[s.place].slow++
	s.slow = true
	replace()
}

// end ends a pass. It reports whether its worker should go on with another, and
// returns the owners that need not be put off any longer.
func (s *shift) end() (goOn bool, putOff []types.NamespacedName) {
	c := s.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	s.timer.Stop()
	s.ended = true
	here := c.in[s.place]
	if s.slow {
		c.slow--
		here.slow--
	}
	if here.all--; here.all == 0 {
		delete(c.in, s.place)
	}
	putOff = c.putOff[s.place].UnsortedList()
	delete(c.putOff, s.place)
	return !s.slow, putOff
}
