// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import "time"

// A Clock shows virtual time, which changes only when Advance is called. The zero Clock shows the
// zero time. The Clock of a cluster starts at Options.Start.
type Clock struct{ now time.Time }

func newClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the time that the clock shows. If the Clock is nil, Now returns the zero time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.now
}

// Advance moves the clock forward by d. If d is zero or negative, Advance does nothing.
func (c *Clock) Advance(d time.Duration) {
	if c != nil {
		c.now = c.now.Add(max(d, 0))
	}
}
