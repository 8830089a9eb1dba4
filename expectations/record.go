package expectations

import (
	"math"
	"sync/atomic"
	"time"
)

// A record is what one owner waits for, and since when. Only its counts change.
type record struct {
	counts
	since time.Time
}

// state tells where the record stands. A nil record is satisfied (E1).
func (r *record) state(timeout time.Duration, now func() time.Time) (State, time.Duration) {
	if r == nil || r.fulfilled() {
		return Satisfied, 0
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	left := timeout - r.age(now)
	if left < 0 {
		return Expired, 0
	}
	return Waiting, min(left, math.MaxInt64-1) + 1 // it expires after the timeout, not at it (E3)
}

// age returns the time since the record was made: never negative, so that a
// clock that went back cannot make anybody wait longer than the timeout before
// looking again.
func (r *record) age(now func() time.Time) time.Duration {
	if now == nil {
		return max(time.Since(r.since), 0)
	}
	return max(now().Sub(r.since), 0)
}

// instant returns the time by a clock that may be nil.
func instant(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// counts holds the creations and the deletions that are outstanding, read and
// changed as one: adds in the upper half, dels in the lower one. Either stays
// within -math.MaxInt32..math.MaxInt32, so neither can run into the other, and
// negating one cannot overflow.
type counts struct{ pair atomic.Uint64 }

func (c *counts) store(adds, dels int) { c.pair.Store(pack(bounded(adds), bounded(dels))) }

func (c *counts) load() (adds, dels int) {
	a, d := unpack(c.pair.Load())
	return int(a), int(d)
}

// add changes both counts at once, and returns how many creations are
// outstanding then.
func (c *counts) add(adds, dels int32) int32 {
	for {
		old := c.pair.Load()
		a, d := unpack(old)
		a, d = plus(a, adds), plus(d, dels)
		if c.pair.CompareAndSwap(old, pack(a, d)) {
			return a
		}
	}
}

// fulfilled reports whether neither side blocks (E2).
func (c *counts) fulfilled() bool {
	adds, dels := unpack(c.pair.Load())
	return adds <= 0 && dels <= 0
}

func pack(adds, dels int32) uint64 { return uint64(uint32(adds))<<32 | uint64(uint32(dels)) }

func unpack(pair uint64) (adds, dels int32) { return int32(pair >> 32), int32(pair) }

func plus(a, b int32) int32 { return clamp(int64(a) + int64(b)) }

func bounded(n int) int32 { return clamp(int64(n)) }

func clamp(n int64) int32 { return int32(min(max(n, -math.MaxInt32), math.MaxInt32)) }
