// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// runawayMinutes is for how long creations count.
	runawayMinutes = 10
	// An owner runs away if more children were made for it in that time than twice as many
	// as it wanted at most, and some more: those of a rollout that was tried again.
	runawayShare, runawayMore = 2, 10
)

// runaways finds out for which owners children are made again and again. It remembers
// those for which children were made in the last minutes, and no others.
type runaways struct {
	mu    sync.Mutex
	owned map[types.NamespacedName]*creations
}

func newRunaways() *runaways { return &runaways{owned: map[types.NamespacedName]*creations{}} }

// creations are those for one owner, by minute.
type creations struct {
	minute int64 // of the newest
	made   [runawayMinutes]int
	wanted [runawayMinutes]int // at most
}

// note takes note of a pass.
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

// count returns how many owners run away, and forgets those for which nothing was made
// for long.
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

// advance forgets what is too old, and returns the place of the present minute. A clock
// that was set back counts as one that stands still.
func (c *creations) advance(now time.Time) int {
	minute := max(now.Unix()/60, c.minute)
	for i := range min(minute-c.minute, runawayMinutes) {
		old := (minute - i) % runawayMinutes
		c.made[old], c.wanted[old] = 0, 0
	}
	c.minute = minute
	return int(minute % runawayMinutes)
}
