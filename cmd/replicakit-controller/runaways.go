// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// runawayMinutes is the number of minutes for which a created child counts toward the
	// runaway limit.
	runawayMinutes = 10
	// An owner is a runaway if too many children were created for it in the last runawayMinutes.
	// The limit is runawayMore plus runawayShare times the highest number of replicas that the
	// owner wanted in the last runawayMinutes. Repeated rollouts stay below the limit.
	runawayShare, runawayMore = 2, 10
)

// runaways finds owners for which children are created again and again. It stores only owners for
// which children were created in the last runawayMinutes.
type runaways struct {
	mu    sync.Mutex
	owned map[types.NamespacedName]*creations
}

func newRunaways() *runaways { return &runaways{owned: map[types.NamespacedName]*creations{}} }

// creations holds the number of children created for one owner in each minute.
type creations struct {
	minute int64 // latest counted minute, as minutes since 1970
	made   [runawayMinutes]int
	wanted [runawayMinutes]int // highest number of wanted replicas in each minute
}

// note records how many children a pass created for an owner, and how many the owner wants.
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

// count returns the number of runaways. It also forgets owners for which no children were created
// in the last runawayMinutes.
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

// advance removes the counts of old minutes, and returns the index of the current minute. If the
// clock was set back, the latest minute stays the current minute.
func (c *creations) advance(now time.Time) int {
	minute := max(now.Unix()/60, c.minute)
	for i := range min(minute-c.minute, runawayMinutes) {
		old := (minute - i) % runawayMinutes
		c.made[old], c.wanted[old] = 0, 0
	}
	c.minute = minute
	return int(minute % runawayMinutes)
}
