// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// runawayMinutes is for how many minutes creations count.
	runawayMinutes = 10
	// An owner runs away if too many children were made for it in that time. The limit is
	// runawayShare times the highest number that it wanted, plus runawayMore. A rollout that is
	// tried again stays below that.
	runawayShare, runawayMore = 2, 10
)

// runaways finds owners for which children are made again and again. It remembers only
// owners for which children were made in the last minutes.
type runaways struct {
	mu    sync.Mutex
	owned map[types.NamespacedName]*creations
}

func newRunaways() *runaways { return &runaways{owned: map[types.NamespacedName]*creations{}} }

// creations are the children made for one owner, by minute.
type creations struct {
	minute int64 // of the newest
	made   [runawayMinutes]int
	wanted [runawayMinutes]int // at most
}

// note records a pass.
func (r *runaways) note(owner types.NamespacedName, made, wanted int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.owned[owner]
	if c == nil {
		if made == 0 {
			return
		}
		c = &creations{}
		r.owned[owner] = c
	}
	i := c.advance(now)
	c.made[i] += made
	c.wanted[i] = max(c.wanted[i], wanted)
}

// count returns how many owners run away. It forgets owners whose last creation is too old.
func (r *runaways) count(now time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for owner, c := range r.owned {
		c.advance(now)
		made, wanted := 0, 0
		for i := range c.made {
			made += c.made[i]
			wanted = max(wanted, c.wanted[i])
		}
		switch {
		case made == 0:
			delete(r.owned, owner)
		case made > runawayShare*wanted+runawayMore:
			n++
		}
	}
	return n
}

// advance forgets old minutes, and returns the index of the current minute. A clock that was
// set back counts as one that stands still.
func (c *creations) advance(now time.Time) int {
	minute := max(now.Unix()/60, c.minute)
	for i := range min(minute-c.minute, runawayMinutes) {
		old := (minute - i) % runawayMinutes
		c.made[old], c.wanted[old] = 0, 0
	}
	c.minute = minute
	return int(minute % runawayMinutes)
}
