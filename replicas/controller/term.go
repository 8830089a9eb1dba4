// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"sync"
	"time"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

const (
	// cachePatience is how long the first passes of a term wait at most until the
	// cache has come as far as the server had when the term began.
	cachePatience = 2 * time.Second
	// clocksDiffer is by how much the clocks of the server and of this process may
	// differ: an owner that was created so long after the term began is a new one.
	clocksDiffer = 5 * time.Minute
)

// errWait ends a pass that has asked for a requeue.
var errWait = errors.New("controller: the cache may be behind an earlier process")

// A term is the time in which this process is the only one that is at work. When it
// begins, the caches may be older than what an earlier process saw. The zero value is the
// first term, which has not begun.
type term struct {
	mu      sync.Mutex
	ended   int       // terms before this one
	began   time.Time // the first pass
	asked   time.Time // when the server was first asked for its version
	last    time.Time // when it was asked last
	asking  bool
	version string // of the server's children, after the term began; "" if not known
}

// next begins another term with the next pass.
func (t *term) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended++
	t.began, t.asked, t.last, t.version = time.Time{}, time.Time{}, time.Time{}, ""
}

// begin returns the number of the term that a pass begins in, from 1 on, and when that began.
func (t *term) begin(now time.Time) (number int, began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began.IsZero() {
		t.began = now
	}
	return t.ended + 1, t.began
}

// reached reports whether a cache of a version shows all that was there when the term
// began.
func (t *term) reached(version string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return resourceversion.Reached(version, t.version)
}

// patience returns how long a pass waits before it looks at the cache again; 0 if that has
// taken long enough.
func (t *term) patience(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	waited := now.Sub(t.asked)
	if waited < 0 || waited >= cachePatience {
		return 0
	}
	return min(max(waited, 50*time.Millisecond), cachePatience-waited)
}

// ask asks for the server's version, unless it is known, or another pass asks, or has asked
// less than a second ago.
func (t *term) ask(now func() time.Time, version func() (string, error)) {
	t.mu.Lock()
	at := now()
	if t.version != "" || t.asking || !t.last.IsZero() && at.Sub(t.last) < time.Second && !at.Before(t.last) {
		t.mu.Unlock()
		return
	}
	number := t.ended
	t.asking, t.last = true, at
	if t.asked.IsZero() {
		t.asked = at
	}
	t.mu.Unlock()
	is, err := "", errors.New("controller: a panic")
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.asking = false
		if err == nil && number == t.ended {
			t.version = is
		}
	}()
	is, err = version()
}
