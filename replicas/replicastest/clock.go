// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import "time"

// A Clock is virtual time. It stands still until Advance is called. The zero Clock shows the zero
// instant. The Clock of a cluster begins at Options.Start.
type Clock struct{ now time.Time }

func newClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the instant that the clock shows. For a nil Clock, it returns the zero instant.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.now
}

// Advance moves the clock forward. If d is 0 or less, it does nothing.
func (c *Clock) Advance(d time.Duration) {
	if c != nil {
		c.now = c.now.Add(max(d, 0))
	}
}
