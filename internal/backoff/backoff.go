// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backoff calculates the delay before an operation is retried.
package backoff

import "time"

// A Hold is a delay that begins at the instant Since and lasts for the duration Wait. The zero Hold has
// expired.
type Hold struct {
	Since time.Time
	Wait  time.Duration
}

// Double restarts the Hold at the instant now and doubles the duration Wait. The new duration is at least
// the value of the argument first, and at most the value of the argument last.
func (h *Hold) Double(now time.Time, first, last time.Duration) {
	h.Since, h.Wait = now, min(max(2*h.Wait, first), last)
}

// Remaining returns the time until the Hold expires. The result is 0 or negative if the Hold has expired. If
// the clock has been set back to a time before Since, the Hold starts again.
func (h *Hold) Remaining(now time.Time) time.Duration {
	if now.Before(h.Since) {
		h.Since = now
	}
	return h.Wait - now.Sub(h.Since)
}
