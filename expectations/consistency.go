// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// DefaultGiveUpAfter is how long an owner waits for the cache to show a write if
// ConsistencyStore.GiveUpAfter is 0 or less.
const DefaultGiveUpAfter = 10 * time.Minute

// A stale cache is checked again after shortestRetry. After each check, the delay doubles, up to
// longestRetry.
const (
	shortestRetry = 50 * time.Millisecond
	longestRetry  = time.Second
)

// ConsistencyStore remembers the resource versions of the writes that a controller made for each
// owner, and reports whether the cache shows these writes yet. A ConsistencyStore needs no watch
// events. Use a ConsistencyStore in addition to a Store, and not instead of one, because a
// ConsistencyStore does not know of writes whose answers were lost. Call Ready first in a pass,
// before you read anything from the cache:
//
//	if stale, ready := store.Ready(key); !ready {
//		return requeueAfter(stale.RetryAfter) // no error, since nothing failed
//	}
//
// Call WroteAt for every write whose answer has a resource version, such as creates, adoptions,
// releases, status writes, and deletes of objects that stay for their grace period.
//
// The zero value and a nil pointer remember nothing, so every owner is ready. A ConsistencyStore is
// safe for concurrent use, and must not be copied after first use.
//
// Differs from Kubernetes (pkg/controller/util/consistency, KEP-5647): an owner that waits does not
// cause an error or an error back-off. If the cache never shows a write, or if the resource version
// of a write cannot be compared, the store gives up the write and counts it. The store forgets the
// write to a resource as soon as the cache of this resource shows the write. Ready and WroteAt may
// be called at the same time.
type ConsistencyStore struct {
	// ReadVersion returns the resource version that the cache of a resource has reached. If
	// ReadVersion returns "", this version is unknown, and writes to the resource count as seen.
	// Return the version of the store from which you read objects. Do not return an informer's
	// LastSyncResourceVersion, because this version is ahead of the informer's store. A write would
	// then count as seen before the store has it.
	//
	// If ReadVersion is nil, every owner is ready. Set ReadVersion before first use. ReadVersion
	// may be called from several goroutines at once, and is called while no lock is held.
	ReadVersion func(resource schema.GroupResource) string

	// GiveUpAfter is how long an owner waits for one write. The time starts with the first call of
	// Ready that does not find the write in the cache. 0 or less means DefaultGiveUpAfter. Set
	// GiveUpAfter before first use.
	GiveUpAfter time.Duration

	// Now returns the current time. Nil means time.Now. Set Now before first use. If the clock goes
	// back or stands still, RetryAfter does not grow, and the store gives up a write later.
	Now func() time.Time

	mu      sync.Mutex
	owners  map[types.NamespacedName]*writer
	givenUp uint64
	changes uint64 // the latest number that was given to a change of a write
}

// A writer is one incarnation of an owner, with the owner's latest write to each resource.
type writer struct {
	uid    types.UID
	writes []write
}

type write struct {
	resource schema.GroupResource
	version  string
	read     string    // the newest version that was seen in the cache
	missing  time.Time // when the write was first found missing, or zero
	change   uint64    // the unique number of the change that set version and read
}

// Stale names a cache that does not show a write of the owner yet.
type Stale struct {
	// Resource is the resource that was written, such as pods. Wrote is the resource version of the
	// write, and Read is the resource version that the cache has reached.
	Resource    schema.GroupResource
	Read, Wrote string
	// RetryAfter is how long to wait before the next call of Ready. RetryAfter is 50 milliseconds
	// at first, and doubles up to one second.
	RetryAfter time.Duration
}

// String returns "pods: read 100, wrote 105".
func (s Stale) String() string {
	return fmt.Sprintf("%s: read %s, wrote %s", s.Resource, s.Read, s.Wrote)
}

// WroteAt records a write of an owner to a resource, with the resource version that the API server
// returned. If an owner writes to a resource several times, the highest version counts. If two
// versions cannot be compared, the later write counts. If the name of the owner was recorded with
// another UID, the new record replaces the old one. If version is empty, WroteAt does nothing.
func (s *ConsistencyStore) WroteAt(owner Key, resource schema.GroupResource, version string) {
	if s == nil || s.ReadVersion == nil || version == "" {
		return
	}
	made := write{resource: resource, version: version, read: s.ReadVersion(resource)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	made.change = s.changes
	w := s.writerFor(owner)
	i := slices.IndexFunc(w.writes, func(w write) bool { return w.resource == resource })
	if i < 0 {
		w.writes = append(w.writes, made)
		return
	}
	order, err := resourceversion.Compare(w.writes[i].version, version)
	if err != nil || order < 0 {
		w.writes[i] = made
	}
}

// Ready reports whether the caches show all writes of the owner. If a cache does not, Stale names
// this cache. If there are several such caches, Stale names the one whose resource the owner wrote
// first. Ready forgets the writes that the caches show. An owner without recorded writes is ready.
// An owner whose UID differs from the recorded UID is also ready. An empty UID stands for any UID.
//
// Ready gives up a write if the owner has waited for GiveUpAfter, or if a version is not a number.
// Ready also gives up a write if the cache has gone back to an older version, for example because
// etcd was restored from a backup. Such a cache may never reach the version of the write. If Ready
// gives up writes and no other write is missing, it returns true and a Stale that names one of the
// writes that it gave up. The cache is then old, so list from the API server before you act. If
// Ready returns true and gave up no write, Stale is zero. GivenUp counts the writes that Ready gave
// up.
func (s *ConsistencyStore) Ready(owner Key) (Stale, bool) {
	reads := s.reads(owner)
	if len(reads) == 0 {
		return Stale{}, true
	}
	now := timeBy(s.Now)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.find(owner)
	if w == nil {
		return Stale{}, true
	}
	stale, ready := s.settle(w, reads, now)
	if len(w.writes) == 0 {
		delete(s.owners, owner.NamespacedName)
	}
	return stale, ready
}

// Clear forgets the writes of an owner. An empty UID stands for any UID. Call Clear when the owner
// no longer exists.
func (s *ConsistencyStore) Clear(owner Key) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(owner) != nil {
		delete(s.owners, owner.NamespacedName)
	}
}

// GivenUp returns how many writes were given up before the cache showed them. If the number grows,
// the store does not protect you from an old cache. Possible causes are a watch that stays broken
// for minutes, a restored etcd, and versions that are not numbers.
func (s *ConsistencyStore) GivenUp() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.givenUp
}

// reads returns the cache versions of the resources that an owner wrote, by the change number of
// each write. If a write changes while reads runs, its new change number is not in the result.
func (s *ConsistencyStore) reads(owner Key) map[uint64]string {
	writes := s.written(owner)
	if len(writes) == 0 {
		return nil
	}
	reads := make(map[uint64]string, len(writes))
	for _, made := range writes {
		reads[made.change] = s.ReadVersion(made.resource)
	}
	return reads
}

func (s *ConsistencyStore) written(owner Key) []write {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.find(owner); w != nil {
		return slices.Clone(w.writes)
	}
	return nil
}

// find returns the record of an owner, or nil if the owner's name has no record or a record with
// another UID. The caller holds mu.
func (s *ConsistencyStore) find(owner Key) *writer {
	w := s.owners[owner.NamespacedName]
	if w == nil || owner.UID != "" && owner.UID != w.uid {
		return nil
	}
	return w
}

// writerFor returns the record of one incarnation of an owner. A record of another incarnation is
// replaced. The caller holds mu.
func (s *ConsistencyStore) writerFor(owner Key) *writer {
	w := s.owners[owner.NamespacedName]
	if w != nil && w.uid == owner.UID {
		return w
	}
	if s.owners == nil {
		s.owners = make(map[types.NamespacedName]*writer)
	}
	w = &writer{uid: owner.UID}
	s.owners[owner.NamespacedName] = w
	return w
}

// settle drops the writes that were seen or given up, and reports whether no write is missing. If
// some are missing, settle returns a Stale for the first of them. If a write changed after reads
// was made, settle uses the cache version that is stored with the write. The caller holds mu.
func (s *ConsistencyStore) settle(w *writer, reads map[uint64]string, now time.Time) (stale Stale, ready bool) {
	ready = true
	var gaveUp Stale
	left := w.writes[:0]
	for _, made := range w.writes {
		read, asked := reads[made.change]
		if !asked {
			read = made.read
		}
		if !asked && read == "" { // the version was unknown when the write was recorded; try again in the next call
			left = append(left, made)
			continue
		}
		if read != made.read {
			s.changes++
			made.change = s.changes
		}
		found, retryAfter := made.look(read, now, s.giveUpAfter())
		switch found {
		case givenUp:
			s.givenUp++
			gaveUp = Stale{Resource: made.resource, Read: read, Wrote: made.version}
		case missing:
			left = append(left, made)
			if ready {
				stale, ready = Stale{made.resource, read, made.version, retryAfter}, false
			}
		}
	}
	w.writes = left
	if ready {
		stale = gaveUp
	}
	return stale, ready
}

func (s *ConsistencyStore) giveUpAfter() time.Duration {
	if s.GiveUpAfter <= 0 {
		return DefaultGiveUpAfter
	}
	return s.GiveUpAfter
}

type finding uint8

const (
	seen finding = iota
	missing
	givenUp
)

// look compares a write with the version of its cache. If the write is missing, retryAfter is about
// as long as the owner has already waited. So the time between two checks doubles, no matter how
// many other checks come in between.
func (w *write) look(read string, now time.Time, giveUpAfter time.Duration) (found finding, retryAfter time.Duration) {
	if read == "" {
		return seen, 0
	}
	order, err := resourceversion.Compare(w.version, read)
	if err != nil {
		return givenUp, 0
	}
	if order <= 0 {
		return seen, 0
	}
	if resourceversion.Older(read, w.read) {
		return givenUp, 0
	}
	w.read = read
	if w.missing.IsZero() {
		w.missing = now
	}
	waited := max(now.Sub(w.missing), 0)
	if waited >= giveUpAfter {
		return givenUp, 0
	}
	retryAfter = min(waited, longestRetry) + shortestRetry
	return missing, min(retryAfter, longestRetry, giveUpAfter-waited)
}
