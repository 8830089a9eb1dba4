// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"sync"
	"time"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// cachePatience is how long the first passes of a term wait at most until the
// cache has come as far as the server had when the term began.
const cachePatience = 2 * time.Second

// errWait ends a pass that has asked for a requeue.
var errWait = errors.New("controller: the cache may be behind an earlier process")

// A term is the time in which this process is the only one that is at work. When it
// begins, the caches may be older than what an earlier process saw. The zero value is the
// first term, which has not begun.
type term struct {
	mu    sync.Mutex
	ended int // terms before this one
	// The owners may be stored apart from the children, so these versions are never compared
	// with one another.
	owners, children serverVersion
}

// next begins another term with the next pass.
func (t *term) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended++
	t.owners.forget()
	t.children.forget()
}

// number returns the number of the term that a pass begins in, from 1 on.
func (t *term) number() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended + 1
}

// A serverVersion is how far the server had come with one resource after the term began.
type serverVersion struct {
	mu        sync.Mutex
	is        string    // "" if not known
	asked     time.Time // when a pass first wanted to know
	last      time.Time // when it was asked last
	asking    bool
	forgotten int // how often
}

// askFirst asks the server before any pass does. No pass waits for a cache yet.
func (v *serverVersion) askFirst(now func() time.Time, version func() (string, error)) {
	v.ask(now, version)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = time.Time{}
}

// forget drops what was learned in a term that has ended.
func (v *serverVersion) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forgotten++
	v.is, v.asked, v.last = "", time.Time{}, time.Time{}
}

// known returns the version, "" if it is not known, and when a pass first wanted to know it.
func (v *serverVersion) known() (is string, asked time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.is, v.asked
}

// reached reports whether a cache of a version shows all that was there when the term
// began.
func (v *serverVersion) reached(version string) bool {
	is, _ := v.known()
	return resourceversion.Reached(version, is)
}

// patience returns how long a pass waits before it looks at the cache again; 0 if that has
// taken long enough.
func (v *serverVersion) patience(now time.Time) time.Duration {
	_, asked := v.known()
	waited := now.Sub(asked)
	if waited < 0 || waited >= cachePatience {
		return 0
	}
	return min(max(waited, 50*time.Millisecond), cachePatience-waited)
}

// ask asks the server, unless the version is known, or another pass asks, or has asked less
// than a second ago. It returns what is known then.
func (v *serverVersion) ask(now func() time.Time, version func() (string, error)) string {
	v.mu.Lock()
	at := now()
	if v.asked.IsZero() {
		v.asked = at
	}
	if v.is != "" || v.asking || !v.last.IsZero() && at.Sub(v.last) < time.Second && !at.Before(v.last) {
		defer v.mu.Unlock()
		return v.is
	}
	forgotten := v.forgotten
	v.asking, v.last = true, at
	v.mu.Unlock()
	is, err := "", errors.New("controller: a panic")
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.asking = false
		if err == nil && forgotten == v.forgotten {
			v.is = is
		}
	}()
	if is, err = version(); err != nil {
		return ""
	}
	return is
}
