// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backoff has the delay before something is tried again.
package backoff

import "time"

// A Hold lasts for a while from an instant on. The zero Hold is none.
type Hold struct {
	Since time.Time
	Wait  time.Duration
}

// Double makes the Hold start now and last twice as long as before, within bounds.
func (h *Hold) Double(now time.Time, first, last time.Duration) {
	h.Since, h.Wait = now, min(max(2*h.Wait, first), last)
}

// Remaining returns how long the Hold still lasts, or 0 or less if it is over. If the clock went back, the
// Hold starts again.
func (h *Hold) Remaining(now time.Time) time.Duration {
	if now.Before(h.Since) {
		h.Since = now
	}
	return h.Wait - now.Sub(h.Since)
}
