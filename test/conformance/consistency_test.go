// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A write is one step of a test. The steps "write" and "clear" call both consistency stores, "read" changes the
// version of a cache, and "look" compares the stores.
type write struct {
	Do       string
	Owner    string
	UID      string
	Resource string
	Version  string
}

func (w write) owner() types.NamespacedName {
	return types.NamespacedName{Namespace: "a", Name: w.Owner}
}

// writes is a sequence of steps. A cache in the list Unwatched reports no version. A cache that is not in this list
// begins at version 1.
type writes struct {
	Unwatched []string
	Writes    []write
}

// newWrites returns a random sequence of steps. If rewinds is set, the versions of the caches sometimes decrease.
// Otherwise these versions never decrease.
func newWrites(g *gen, rewinds bool) writes {
	c := writes{Writes: make([]write, 1+g.IntN(25))}
	if g.in(10) {
		c.Unwatched = []string{pick(g, "pods", "replicasets")}
	}
	read := map[string]int{}
	for i := range c.Writes {
		w := write{
			Do:       pick(g, "write", "write", "write", "read", "read", "look", "look", "look", "clear"),
			Owner:    pick(g, "web", "web", "db"),
			UID:      pick(g, "1", "1", "1", "2"),
			Resource: pick(g, "pods", "replicasets", "unheard of"),
			Version:  strconv.Itoa(1 + g.IntN(40)),
		}
		switch {
		case w.Do == "read":
			read[w.Resource] += g.IntN(12)
			if rewinds && g.in(3) {
				read[w.Resource] /= 2
			}
			w.Version = strconv.Itoa(1 + read[w.Resource])
		case w.Do == "clear" && g.in(3):
			w.UID = ""
		case g.in(8):
			w.Version = pick(g, "0", "007", "x", "-1", "99999999999999999999", "100000000000000000000")
		}
		c.Writes[i] = w
	}
	return c
}

// A version is a cache that reports the resourceVersion up to which it has read.
type version struct{ string }

func (v *version) LastStoreSyncResourceVersion() string { return v.string }

// stores holds the consistency stores of both sides. Both stores use the versions of the same caches.
type stores struct {
	caches map[string]*version
	theirs upstream.Consistency
	ours   *expectations.ConsistencyStore
}

func newStores(unwatched []string) stores {
	s := stores{caches: map[string]*version{"pods": {"1"}, "replicasets": {"1"}}}
	for _, resource := range unwatched {
		s.caches[resource].string = ""
	}
	s.theirs = upstream.NewConsistencyStore(map[schema.GroupResource]upstream.LastSyncRVGetter{
		{Resource: "pods"}: s.caches["pods"], {Resource: "replicasets"}: s.caches["replicasets"],
	})
	s.ours = &expectations.ConsistencyStore{ReadVersion: func(r schema.GroupResource) string {
		if cache := s.caches[r.Resource]; cache != nil {
			return cache.string
		}
		return ""
	}}
	return s
}

// do makes a step on both sides, and reports whether the version of a cache decreased. It ignores the step "look".
func (s stores) do(w write) (wentBack bool) {
	resource := schema.GroupResource{Resource: w.Resource}
	switch w.Do {
	case "write":
		s.theirs.WroteAt(w.owner(), types.UID(w.UID), resource, w.Version)
		s.ours.WroteAt(expectations.Key{NamespacedName: w.owner(), UID: types.UID(w.UID)}, resource, w.Version)
	case "read":
		if cache := s.caches[w.Resource]; cache != nil && cache.string != "" {
			before, _ := strconv.Atoi(cache.string)
			after, _ := strconv.Atoi(w.Version)
			cache.string, wentBack = w.Version, after < before
		}
	case "clear":
		s.theirs.Clear(w.owner(), types.UID(w.UID))
		s.ours.Clear(expectations.Key{NamespacedName: w.owner(), UID: types.UID(w.UID)})
	}
	return wentBack
}

const (
	behind  = "a cache is behind"
	inTime  = "no cache is behind"
	rewound = "W52: what a cache that went back in time may never see is not waited for"
	gaveUp  = "W52: a write that is not seen for 10 minutes is given up"
)

// look compares what the two stores report for an owner.
func (s stores) look(w write, named *tally) string {
	err := s.theirs.EnsureReady(w.owner())
	stale, isReady := s.ours.Ready(expectations.Key{NamespacedName: w.owner()})
	var theirs *upstream.ConsistencyError
	if errors.As(err, &theirs) == isReady {
		return fmt.Sprintf("Kubernetes: %v; ours: %v, ready: %v", err, stale, isReady)
	}
	if isReady {
		named.reach(inTime)
		return ""
	}
	named.reach(behind)
	// If several caches are behind, Kubernetes names any one of them.
	if theirs.GroupResource == stale.Resource && (theirs.ReadRV != stale.Read || theirs.WroteRV != stale.Wrote) {
		return fmt.Sprintf("Kubernetes: %v; ours: %v", err, stale)
	}
	return ""
}

func TestConsistencyStore(t *testing.T) {
	t.Parallel()
	t.Run("X1 X2 X3 X4 X5 X6 X7 the same owners wait for a cache", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[writes]{
			cases: 100_000, of: "sequences of up to 25 calls",
			input: func(g *gen) writes { return newWrites(g, false) },
			differ: func(c writes, named *tally) string {
				s := newStores(c.Unwatched)
				for i, w := range c.Writes {
					s.do(w)
					if w.Do != "look" {
						continue
					}
					if d := s.look(w, named); d != "" {
						return fmt.Sprintf("at call %d: %s", i, d)
					}
				}
				return ""
			},
			reaches: []string{behind, inTime},
		})
	})
	t.Run("W52 a write is given up where Kubernetes waits for it after ten minutes", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[writes]{
			cases: 50_000, of: "sequences of up to 25 calls, minutes apart",
			input: func(g *gen) writes { return newWrites(g, false) },
			differ: func(c writes, named *tally) string {
				s := newStores(c.Unwatched)
				begin := time.Now()
				for i, w := range c.Writes {
					s.do(w)
					if w.Do != "look" {
						continue
					}
					time.Sleep(3 * time.Minute)
					d := s.look(w, named)
					if d != "" && s.ours.GivenUp() > 0 && time.Since(begin) >= 10*time.Minute {
						named.add(gaveUp)
						return ""
					}
					if d != "" {
						return fmt.Sprintf("at call %d: %s", i, d)
					}
				}
				return ""
			},
			names: []string{gaveUp}, reaches: []string{behind, inTime},
		})
	})
	t.Run("W52 nobody waits for a cache that went back", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[writes]{
			cases: 50_000, of: "sequences of up to 25 calls, caches going back",
			input: func(g *gen) writes { return newWrites(g, true) },
			differ: func(c writes, named *tally) string {
				s := newStores(c.Unwatched)
				wentBack := false
				for i, w := range c.Writes {
					wentBack = s.do(w) || wentBack
					if w.Do != "look" {
						continue
					}
					err := s.theirs.EnsureReady(w.owner())
					d := s.look(w, named)
					if d != "" && err != nil && wentBack {
						named.add(rewound)
						return ""
					}
					if d != "" {
						return fmt.Sprintf("at call %d: %s", i, d)
					}
				}
				return ""
			},
			names: []string{rewound}, reaches: []string{behind, inTime},
		})
	})
}
