// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// A record holds the creations and deletions that one owner waits for. It also holds the start and
// the maximum length of the wait.
type record[K comparable] struct {
	key      K
	next     *record[K] // the next record whose key has the same hash, or nil
	since    time.Time
	patience time.Duration
	// creations and deletions count changes that are not identified by name or UID. A negative
	// number lowers the total, but the names and UIDs stay in the record.
	creations, deletions int32
	names                sets.Set[string]
	uids                 sets.Set[types.UID]
	_                    [16]byte // pads a record[Key] to 128 bytes, so that records do not share cache lines
}

// outstanding reports whether a creation or deletion is outstanding (E2). If r is nil, nothing is
// outstanding (E1).
func (r *record[K]) outstanding() bool {
	return r != nil && (int(r.creations) > -len(r.names) || int(r.deletions) > -len(r.uids))
}

// after(age, patience) returns the state of a record with the given age and timeout. The record
// must have outstanding changes. If the state is Waiting, the second result is the time until the
// record expires. If the clock went back, the age is negative and counts as 0.
func after(age, patience time.Duration) (State, time.Duration) {
	left := patience - max(age, 0)
	if left < 0 {
		return Expired, 0
	}
	return Waiting, min(left, math.MaxInt64-1) + 1 // a record expires only when its age exceeds the timeout (E3)
}

func (r *record[K]) pending() Pending {
	return Pending{Since: r.since, Changes: Changes{
		Creations: int(r.creations),
		Deletions: int(r.deletions),
		Creating:  slices.Sorted(maps.Keys(r.names)),
		Deleting:  slices.Sorted(maps.Keys(r.uids)),
	}}
}

// lowerOne decrements the number if it is above zero, and reports whether it was above zero.
func lowerOne(n *int32) bool {
	if *n <= 0 {
		return false
	}
	*n--
	return true
}

func plus(a int32, b int64) int32 { return clamp(int64(a) + b) }

func bounded(n int) int32 { return clamp(int64(n)) }

func clamp(n int64) int32 { return int32(min(max(n, -math.MaxInt32), math.MaxInt32)) }

// insert adds the non-empty tokens to a set. It returns the tokens that were not in the set before,
// and the number of empty tokens.
func insert[T ~string](set *sets.Set[T], tokens []T) (fresh []T, empty int) {
	if *set == nil && len(tokens) > 0 {
		*set = make(sets.Set[T], len(tokens))
	}
	for _, token := range tokens {
		switch {
		case token == "":
			empty++
		case !set.Has(token):
			set.Insert(token)
			fresh = append(fresh, token)
		}
	}
	return fresh, empty
}

// An index maps the names of expected creations, or the UIDs of expected deletions, to the owners
// that expect them.
type index[T, K comparable] struct {
	mu   sync.Mutex
	keys map[T][]K // the owners that expect each token, oldest entry first; no list is empty
}

func (x *index[T, K]) get(token T) []K {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.keys[token])
}

func (x *index[T, K]) add(key K, tokens ...T) {
	if len(tokens) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys == nil {
		x.keys = make(map[T][]K)
	}
	alone := []K{key} // all tokens share this slice; its capacity is 1, so append copies it
	for _, token := range tokens {
		if before := x.keys[token]; len(before) > 0 {
			x.keys[token] = append(before, key)
		} else {
			x.keys[token] = alone
		}
	}
}

func (x *index[T, K]) remove(token T, key K) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.keys[token]) <= 1 {
		delete(x.keys, token)
		return
	}
	x.keys[token] = slices.DeleteFunc(x.keys[token], func(k K) bool { return k == key })
}
