package replicastest

import "time"

// A Clock is virtual time: it stands still until somebody moves it.
type Clock struct{ now time.Time }

// NewClock returns a clock that stands at an instant.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the instant that the clock stands at; of a nil one the zero time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.now
}

// Advance moves the clock forward; 0 and less leave it where it stands.
func (c *Clock) Advance(d time.Duration) {
	if c != nil {
		c.now = c.now.Add(max(d, 0))
	}
}
