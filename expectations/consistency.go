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

// DefaultGiveUpAfter is how long an owner waits until the cache shows a write, if
// ConsistencyStore.GiveUpAfter is 0.
const DefaultGiveUpAfter = 10 * time.Minute

// A stale cache is checked again after shortestRetry, then after twice as long each time, up to
// longestRetry.
const (
	shortestRetry = 50 * time.Millisecond
	longestRetry  = time.Second
)

// ConsistencyStore remembers the resource versions of each owner's writes, and reports whether the
// cache shows these writes yet. It needs no events. It complements expectations and does not
// replace them, because it does not see a write whose answer was lost. Ask it first in a pass,
// before you read anything from the cache:
//
//	if stale, ready := store.Ready(key); !ready {
//		return requeueAfter(stale.RetryAfter) // no error, since nothing failed
//	}
//
// Call WroteAt for every write whose answer has a resource version, such as creates, adoptions,
// releases, status writes, and deletes of objects that stay for their grace period.
//
// The zero value and a nil pointer remember nothing, and every owner is ready. A ConsistencyStore
// is safe for concurrent use, and must not be copied after first use.
//
// Differs from Kubernetes (pkg/controller/util/consistency, KEP-5647): waiting is not an error and
// has no error back-off. A write that is never seen, or whose version cannot be compared, is given
// up and counted. Each resource is forgotten as soon as its cache has caught up. Ready and WroteAt
// may be called at the same time.
type ConsistencyStore struct {
	// ReadVersion returns the resource version up to which the cache of a resource is filled. If it
	// returns "", the version is not known, and the resource is not checked. The version must be
	// that of the store from which you read objects. Do not use an informer's
	// LastSyncResourceVersion, because it runs ahead of its store. A write would then count as seen
	// before the store has it.
	//
	// If ReadVersion is nil, nothing is checked. Set it before first use. It may be called from
	// several goroutines at once, and is called with no lock held.
	ReadVersion func(resource schema.GroupResource) string

	// GiveUpAfter is how long an owner waits for one write, counted from the first Ready that does
	// not find it. 0 or less means DefaultGiveUpAfter. Set it before first use.
	GiveUpAfter time.Duration

	// Now returns the time. Nil means time.Now. Set it before first use. If the clock goes back or
	// stands still, an owner looks again every 50 milliseconds, and gives up later.
	Now func() time.Time

	mu      sync.Mutex
	owners  map[types.NamespacedName]*writer
	givenUp uint64
	changes uint64 // number of the last change of a write
}

// A writer is one incarnation of an owner, with its latest write of each resource.
type writer struct {
	uid    types.UID
	writes []write
}

type write struct {
	resource schema.GroupResource
	version  string
	read     string    // the newest version that the cache had
	missing  time.Time // when it was first found missing, or zero
	change   uint64    // the change that set version and read; unique
}

// Stale says which cache does not show the owner's own writes yet.
type Stale struct {
	// Resource is what was written. Wrote is the resource version of the write, and
	// Read is the version up to which the cache is filled.
	Resource    schema.GroupResource
	Read, Wrote string
	// RetryAfter is how long to wait before the next look. It is 50 milliseconds at first, and
	// doubles up to a second.
	RetryAfter time.Duration
}

// String returns "pods: read 100, wrote 105".
func (s Stale) String() string {
	return fmt.Sprintf("%s: read %s, wrote %s", s.Resource, s.Read, s.Wrote)
}

// WroteAt records that an owner wrote a resource, and the resource version that the server
// answered. If an owner writes a resource several times, the highest version counts. If the
// versions cannot be compared, the last one counts. If the owner's UID is new, everything that was
// recorded under the owner's name is replaced. An empty version is ignored.
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

// Ready reports whether the caches show everything that the owner wrote. If not, Stale names the
// cache that does not. If there are several, it names the one that was written first. Writes that
// were seen are forgotten. An owner that wrote nothing is ready, and so is an owner with another
// UID than the one that wrote. An empty UID stands for any UID.
//
// Ready gives up a write if the owner has waited for GiveUpAfter, or if a version is not a number.
// It also does if the cache has gone back, as after a restore of etcd, because the version may then
// never come. If no other write is missing, Ready returns true and a Stale that names one of the
// writes that it gave up. The cache is then old, so list live before you act. Stale is zero if
// Ready returns true and gave up nothing. GivenUp counts these writes.
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

// Clear forgets what an owner wrote. An empty UID stands for any UID. Call it
// when the owner is gone.
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

// GivenUp returns how many writes were given up before they were seen. If the number grows, the
// check does not protect you, because a watch is broken for minutes, etcd was restored, or versions
// are not numbers.
func (s *ConsistencyStore) GivenUp() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.givenUp
}

// reads returns the cache versions of the resources that an owner wrote, by the change of each
// write. A write that changes meanwhile is not among them.
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

// find returns the record under an owner's name, or nil if the record has another UID. The caller
// holds mu.
func (s *ConsistencyStore) find(owner Key) *writer {
	w := s.owners[owner.NamespacedName]
	if w == nil || owner.UID != "" && owner.UID != w.uid {
		return nil
	}
	return w
}

// writerFor returns the record of one incarnation of an owner, and replaces that of any other. The
// caller holds mu.
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

// settle drops the writes that were seen or given up. It reports whether none is missing, and
// returns the first that is. A write that changed since reads was compared with a cache at least as
// new. The caller holds mu.
func (s *ConsistencyStore) settle(w *writer, reads map[uint64]string, now time.Time) (stale Stale, ready bool) {
	ready = true
	var gaveUp Stale
	left := w.writes[:0]
	for _, made := range w.writes {
		read, asked := reads[made.change]
		if !asked {
			read = made.read
		}
		if !asked && read == "" { // not known then; the next look may find more
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

// look compares a write with the version of its cache. A missing write must be checked again after
// retryAfter, about as long as it has already waited. So the time between two looks doubles,
// however many others come in between.
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
