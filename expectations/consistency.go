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

// DefaultGiveUpAfter is used if the field GiveUpAfter of a ConsistencyStore is 0 or less.
const DefaultGiveUpAfter = 10 * time.Minute

// A stale cache is checked again after a delay. The delay starts at shortestRetry and doubles up to
// longestRetry.
const (
	shortestRetry = 50 * time.Millisecond
	longestRetry  = time.Second
)

// ConsistencyStore remembers the resource versions of the writes that a controller made for each
// owner, and reports whether the cache shows these writes yet. A ConsistencyStore needs no watch
// events. A ConsistencyStore does not know about writes whose responses were lost. Therefore, use
// it in addition to a Store, and not instead of a Store. At the start of each pass, call Ready
// before you read anything from the cache:
//
//	if stale, ready := store.Ready(key); !ready {
//		return requeueAfter(stale.RetryAfter) // no error, since nothing failed
//	}
//
// Call WroteAt for every write whose response contains a resource version. Examples are creations,
// adoptions, releases, status updates, and deletions of objects that continue to exist during their
// grace period.
//
// A zero or nil ConsistencyStore remembers nothing, so Ready returns true for every owner. A
// ConsistencyStore is safe for concurrent use, and must not be copied after first use.
//
// Differs from Kubernetes (pkg/controller/util/consistency, since 1.38 util/consistency of client-go,
// KEP-5647): in 1.38, an owner waits for a cache that tells no version. Ready returns no error for
// an owner that must wait, so the work queue does not apply its back-off for errors. If the cache
// never shows a write, or if the resource version of a write cannot be compared, the store gives up
// on the write. GivenUp returns the number of these writes. As soon as the cache shows a write, the
// store forgets the write. Ready and WroteAt may be called at the same time.
type ConsistencyStore struct {
	// ReadVersion returns the resource version that the cache of a resource has reached. If the
	// result is empty, the version is unknown, and all writes to the resource count as seen.
	// Return the version of the store that you read objects from. Do not return the
	// LastSyncResourceVersion of an informer, because this version can be ahead of the informer's
	// store. If ReadVersion returned the LastSyncResourceVersion, a write could count as seen
	// before the store contains the written object.
	//
	// If ReadVersion is nil, every owner is ready. Set ReadVersion before first use. ReadVersion
	// may be called from several goroutines at the same time. The ConsistencyStore does not hold a
	// lock while it calls ReadVersion.
	ReadVersion func(resource schema.GroupResource) string

	// GiveUpAfter is the maximum time that an owner waits for one write. The wait begins when Ready
	// first finds that the write is missing from the cache. A value of 0 or less means
	// DefaultGiveUpAfter. Set GiveUpAfter before first use.
	GiveUpAfter time.Duration

	// Now returns the current time. Nil means time.Now. Set Now before first use. If the clock goes back or
	// stands still, RetryAfter does not increase, and the store takes longer to give up on writes.
	Now func() time.Time

	mu      sync.Mutex
	owners  map[types.NamespacedName]*writer
	givenUp uint64
	changes uint64 // the last number that was assigned to write.change
}

// A writer holds the latest writes of one incarnation of an owner, one for each resource.
type writer struct {
	uid    types.UID
	writes []write
}

type write struct {
	resource schema.GroupResource
	version  string
	read     string    // the newest version that was seen in the cache
	missing  time.Time // the time when Ready first found that the write is missing from the cache, or zero
	change   uint64    // a unique number that identifies the current values of the fields version and read
}

// Stale describes a cache that does not show a write of the owner yet.
type Stale struct {
	// Resource is the resource that was written, such as pods. The field Wrote holds the resource
	// version of the write, and the field Read holds the resource version that the cache has
	// reached.
	Resource    schema.GroupResource
	Read, Wrote string
	// RetryAfter is the delay after which to call Ready again. RetryAfter starts at 50 milliseconds
	// and doubles up to one second.
	RetryAfter time.Duration
}

// String returns a description such as "pods: read 100, wrote 105".
func (s Stale) String() string {
	return fmt.Sprintf("%s: read %s, wrote %s", s.Resource, s.Read, s.Wrote)
}

// WroteAt records a write of an owner to a resource. The argument version is the resource version
// that the API server returned for the write. If an owner writes to a resource several times, only
// the highest version is kept. If two versions cannot be compared, the version of the later write
// is kept. If the store has a record of an owner with the same name and another UID, WroteAt
// replaces this record. If the argument version is empty, WroteAt does nothing.
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

// Ready reports whether the caches show all writes of the owner. If a cache does not show a write,
// the returned Stale describes this cache. If writes are missing from several caches, Stale
// describes the cache of the resource that the owner wrote to first. Ready forgets the writes that
// the caches show. An owner is also ready if no writes are recorded for it, or if its UID differs
// from the recorded UID. An empty UID matches any UID.
//
// If the owner has waited for a write for the duration GiveUpAfter, Ready gives up on the write.
// Ready also gives up if the version of the write or of the cache is not a number. If the cache has
// gone back to an older version, for example because etcd was restored from a backup, Ready gives
// up too. This cache might never reach the version of the write. If Ready gives up on some writes
// and the caches show all others, Ready returns true, and Stale describes one of the writes that
// Ready gave up on. If Ready has given up on a write, the cache may be stale, so list from the API
// server before you act. If Ready returns true without giving up on a write, Stale is zero. GivenUp
// returns the number of writes that Ready gave up on.
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

// Clear forgets the writes of an owner. An empty UID matches any UID. Call Clear when the owner no
// longer exists.
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

// GivenUp returns the number of writes that Ready gave up on before the cache showed them. If this
// number increases, the ConsistencyStore does not protect you from a stale cache. Possible causes
// are a watch that stays broken for minutes, an etcd that was restored from a backup, and resource
// versions that are not numbers.
func (s *ConsistencyStore) GivenUp() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.givenUp
}

// reads returns the result of ReadVersion for each recorded write of an owner. The map is keyed by
// the field change of the writes. If the field change of a write gets a new value during the call,
// the map has no entry for the new value.
func (s *ConsistencyStore) reads(owner Key) map[uint64]string {
	writes := s.writesOf(owner)
	if len(writes) == 0 {
		return nil
	}
	reads := make(map[uint64]string, len(writes))
	for _, made := range writes {
		reads[made.change] = s.ReadVersion(made.resource)
	}
	return reads
}

func (s *ConsistencyStore) writesOf(owner Key) []write {
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

// find returns the record of an owner. If the owner's name has no record, or if the record has
// another UID, find returns nil. The caller holds mu.
func (s *ConsistencyStore) find(owner Key) *writer {
	w := s.owners[owner.NamespacedName]
	if w == nil || owner.UID != "" && owner.UID != w.uid {
		return nil
	}
	return w
}

// writerFor returns the record of an owner, and makes one if there is none. A record with the same
// name and another UID is replaced. The caller holds mu.
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

// settle removes the writes that the caches show. It also removes the writes that the store gives
// up on. If no write is missing, the result ready is true. Otherwise, settle returns a Stale for
// the first missing write. The argument reads is the result of the function reads. If this map has
// no entry for a write, the write was recorded or changed after the function reads began. For this
// write, settle uses the cache version that is stored in write.read. The caller holds mu.
func (s *ConsistencyStore) settle(w *writer, reads map[uint64]string, now time.Time) (stale Stale, ready bool) {
	ready = true
	var gaveUp Stale
	left := w.writes[:0]
	for _, made := range w.writes {
		read, asked := reads[made.change]
		if !asked {
			read = made.read
		}
		if !asked && read == "" { // the cache's version was unknown when the write was recorded, so the write is kept for the next call of Ready
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

// look compares the version of a write with the version that its cache has reached. If the write is
// missing, retryAfter is about as long as the time that the owner has already waited. The delay
// therefore doubles from one retry to the next, even if Ready is also called between the retries.
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
