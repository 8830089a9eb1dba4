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
	// slowPass is the duration after which a pass counts as slow. An additional worker then starts.
	slowPass = time.Second
	// slowPerWorker is the maximum number of concurrent slow passes per worker.
	slowPerWorker = 4
)

// A crew is the set of workers of a controller. For a pass that is slow, an additional worker starts, and the worker
// of the slow pass stops when that pass ends:
//
//	normal passes <= workers
//	slow passes <= slowPerWorker * workers
//	passes in a namespace that has a slow one <= workers
//
// The usual cause of slow passes is an admission webhook that hangs for ten to thirty seconds in each call. With a
// fixed number of workers, five owners of such a webhook would hold up all others. If the client's low rate limit is
// the cause, the additional workers do no harm, because they share it.
//
// Passes have no deadline, because a call that the client has abandoned can still take effect. The API server
// enforces its own deadline for each call.
type crew struct {
	workers int
	running sync.WaitGroup

	mu     sync.Mutex
	slow   int // slow passes under way
	in     map[place]*passes
	putOff map[place]sets.Set[types.NamespacedName]
}

// A place identifies passes that are counted together. It is a namespace or a single cluster-scoped owner.
type place types.NamespacedName

func placeOf(owner types.NamespacedName) place {
	if owner.Namespace == "" {
		return place(owner)
	}
	return place{Namespace: owner.Namespace}
}

// passes counts all passes under way in one place, and the slow ones among them.
type passes struct{ all, slow int }

// A shift is the work of one worker on one owner.
type shift struct {
	crew        *crew
	place       place
	timer       *time.Timer
	slow, ended bool // whether an additional worker has been started, and whether the pass has ended
}

func newCrew(workers int) *crew {
	return &crew{workers: workers, in: map[place]*passes{}, putOff: map[place]sets.Set[types.NamespacedName]{}}
}

func (c *crew) start(work func()) { c.running.Go(work) }

// wait waits until all workers have ended, including those that make slow passes.
func (c *crew) wait() { c.running.Wait() }

// begin registers a new pass for the owner, or returns nil and postpones the owner until another pass in its place
// ends. It calls replace when the pass becomes slow.
func (c *crew) begin(key types.NamespacedName, replace func()) *shift {
	c.mu.Lock()
	defer c.mu.Unlock()
	place := placeOf(key)
	here := c.in[place]
	if here == nil {
		here = &passes{}
		c.in[place] = here
	}
	// Two hundred owners of one namespace have the webhook that hangs. Without this limit they would take the
	// additional workers too, and the owners of all other namespaces would wait.
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

// takesLong marks the pass as slow and has its worker replaced, now or when fewer passes are slow.
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

// end unregisters a pass. It reports whether the worker should go on, and returns the owners that were put off.
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
