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
	// slowPass is how long a pass may take before it no longer counts as one of the workers.
	slowPass = time.Second
	// slowPerWorker is how many passes that do not count there may be for each worker.
	slowPerWorker = 4
)

// A crew is the workers of a controller: at most workers that count, and slowPerWorker times as many that
// do not.
//
// If a pass takes longer than slowPass, it no longer counts. Another worker takes its place, and its own
// worker leaves when the pass ends. The usual reason is an admission webhook that hangs for ten to thirty
// seconds a call. With a fixed number of workers, a few such owners would delay all others.
//
// If a namespace has such a pass, it has at most as many passes of both kinds under way as there are
// workers. Further owners are put off until one of these passes ends. So a namespace full of slow owners
// leaves workers for the others. If a pass is slow only because the client's rate limit is low, nothing is
// lost, because more passes wait for the same limit.
//
// A pass has no deadline. The API server has one for each call, and a call that is cut off may still take
// effect.
type crew struct {
	workers int
	running sync.WaitGroup

	mu     sync.Mutex
	slow   int // passes that do not count
	in     map[place]*passes
	putOff map[place]sets.Set[types.NamespacedName]
}

// A place is a namespace, or a cluster-scoped owner.
type place types.NamespacedName

func placeOf(owner types.NamespacedName) place {
	if owner.Namespace == "" {
		return place(owner)
	}
	return place{Namespace: owner.Namespace}
}

// passes counts the passes under way in one place, and the slow ones among them.
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

// wait waits until all workers have ended, including those that do not count.
func (c *crew) wait() { c.running.Wait() }

// begin begins a pass. If its namespace has too many, begin returns nil, and the end of one of these passes
// returns the owner. replace is called when the pass no longer counts.
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

// takesLong stops counting a pass that is still under way. If too many passes do not count already, it
// tries again later.
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

// end ends a pass. It reports whether its worker should go on with another pass, and returns the owners
// that are no longer put off.
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
