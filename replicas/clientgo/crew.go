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
	// slowPass is the time after which a pass counts as slow, so that another worker takes its place.
	slowPass = time.Second
	// slowPerWorker is the maximum number of slow passes at once, divided by the number of workers.
	slowPerWorker = 4
)

// A crew is the set of workers of a controller. A crew makes at most workers passes at once that are not
// slow, and at most slowPerWorker*workers slow passes.
//
// If a pass takes longer than slowPass, the pass is slow. Another worker then starts, and the worker of
// the slow pass stops when that pass ends. The usual reason for a slow pass is an admission webhook that
// hangs for ten to thirty seconds in each call. With a fixed number of workers, a few owners with slow
// passes would delay all other owners.
//
// While a namespace has a slow pass, the number of passes under way in that namespace, slow or not, is
// limited to workers. Further owners in the namespace wait until one of these passes ends. So a namespace
// in which all passes are slow leaves workers for the other namespaces. If passes are slow only because
// the client's rate limit is low, the additional workers do no harm, because they wait for the same limit.
//
// A pass has no deadline, because a call that the client abandons may still take effect. The API server
// itself has a deadline for each call.
type crew struct {
	workers int
	running sync.WaitGroup

	mu     sync.Mutex
	slow   int // slow passes under way
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
	slow, ended bool // slow: another worker has taken its place
}

func newCrew(workers int) *crew {
	return &crew{workers: workers, in: map[place]*passes{}, putOff: map[place]sets.Set[types.NamespacedName]{}}
}

// start starts a worker.
func (c *crew) start(work func()) { c.running.Go(work) }

// wait waits until all workers have ended, including those that make slow passes.
func (c *crew) wait() { c.running.Wait() }

// begin begins a pass for the owner with this key. If the owner's namespace already has too many passes
// under way, begin returns nil. When one of these passes ends, end returns the key. replace is called when
// the pass becomes slow.
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

// takesLong marks a pass that is still under way as slow, and calls replace. If there are already too many
// slow passes, takesLong tries again after another slowPass.
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

// end ends a pass. goOn reports whether the pass's worker should begin another pass. putOff has the owners
// for which begin returned nil and that may now be tried again.
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
