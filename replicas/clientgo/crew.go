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

// A crew is the set of workers of a controller. A crew for n workers makes at most n normal passes and
// slowPerWorker*n slow passes at the same time.
//
// If a pass takes longer than slowPass, the pass is slow. An additional worker then starts, and the worker
// of the slow pass stops when that pass ends. The usual cause of slow passes is an admission webhook that
// hangs for ten to thirty seconds in each call. With a fixed number of workers, a few owners with slow
// passes would delay all other owners.
//
// While a namespace has a slow pass, at most n passes are under way in that namespace, including the slow
// ones. Other owners in the namespace wait until one of these passes ends. Therefore, even if all passes in
// one namespace are slow, workers remain for the other namespaces. If passes are slow because the client
// has a low rate limit, the additional workers do no harm, because they share this limit.
//
// Passes have no deadline, because a call that the client has abandoned can still take effect. The API
// server enforces its own deadline for each call.
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

// passes counts the passes under way in one namespace, or the passes for one cluster-scoped owner. The
// field all is the number of all passes, and the field slow is the number of slow passes.
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

// start starts a worker.
func (c *crew) start(work func()) { c.running.Go(work) }

// wait waits until all workers have ended, including those that make slow passes.
func (c *crew) wait() { c.running.Wait() }

// begin registers a new pass for the owner with this key. If too many passes are already under way in the
// owner's namespace, begin returns nil and postpones the owner until the end of one of these passes. If the
// new pass becomes slow, the function replace is called.
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

// takesLong marks the pass as slow and calls the function replace, unless the pass has ended. If there are
// already too many slow passes, takesLong is called again after the duration slowPass.
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

// end unregisters a pass. The result goOn reports whether the worker of the pass should start another pass.
// The result putOff lists the postponed owners that can now be queued again.
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
