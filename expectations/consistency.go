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

// DefaultGiveUpAfter is how long a ConsistencyStore lets an owner wait for one
// write to be seen.
const DefaultGiveUpAfter = 10 * time.Minute

// A stale cache is looked at again after shortestRetry, then after twice as long
// each time, up to longestRetry.
const (
	shortestRetry = 50 * time.Millisecond
	longestRetry  = time.Second
)

// ConsistencyStore remembers how far each owner has written, and tells whether
// the cache it reads from has come that far. It needs no events: it compares
// resource versions. It complements expectations and does not replace them: it
// knows nothing of a write whose answer was lost. Ask it first, at the start of a
// pass, before anything is read from the cache:
//
//	if stale, ready := store.Ready(key); !ready {
//		return requeueAfter(stale.RetryAfter) // no error: nothing failed
//	}
//
// and tell it of every write that answered with a resource version: creates,
// adoptions, releases, status writes, and deletes that leave the object there for
// its grace period.
//
// The zero value remembers nothing and is always ready, and so is a nil pointer.
// It is safe for concurrent use, and must not be copied after first use.
//
// Differs from Kubernetes (pkg/controller/util/consistency, KEP-5647): waiting is
// not an error and has no error back-off; a write that is never seen is given up
// and counted, as is one whose version cannot be compared; a resource that has
// caught up is forgotten though another has not; and it does not matter whether
// Ready and WroteAt are called at the same time.
type ConsistencyStore struct {
	// ReadVersion returns the resource version up to which the cache of a
	// resource was filled, or "" if that is not known, which disables the
	// check for that resource. It must be the version of the store that is read
	// from, which moves with the objects in it. An informer's
	// LastSyncResourceVersion runs ahead of its store: with it, a write counts as
	// seen while it is still missing.
	//
	// Nil means that nothing is known. Set it before first use. It may be called
	// from several goroutines at once, and is called with no lock held.
	ReadVersion func(resource schema.GroupResource) string

	// GiveUpAfter is how long an owner waits for one write, from when it was
	// first found missing: 0 or less means DefaultGiveUpAfter. Set it before
	// first use.
	GiveUpAfter time.Duration

	// Now tells the time: nil means time.Now. Set it before first use. A clock
	// that goes back or stands still makes an owner look again every
	// 50 milliseconds, and give up later.
	Now func() time.Time

	mu      sync.Mutex
	owners  map[types.NamespacedName]*writer
	givenUp uint64
	changes uint64 // how many writes were made, or read further on
}

// A writer is one incarnation of an owner, with its latest write of each resource.
type writer struct {
	uid    types.UID
	writes []write
}

type write struct {
	resource schema.GroupResource
	version  string
	read     string    // the newest the cache is known to have been at
	missing  time.Time // since when it is known to be missing; zero: nobody has looked
	change   uint64    // which change set version and read: no other has that number
}

// Stale says which cache has not come as far as the owner's own writes.
type Stale struct {
	// Resource is what was written, Wrote how far, and Read how far its cache is.
	Resource    schema.GroupResource
	Read, Wrote string
	// RetryAfter is when to look again: 50 milliseconds, and twice as long each
	// time up to a second.
	RetryAfter time.Duration
}

// String returns "pods: read 100, wrote 105".
func (s Stale) String() string {
	return fmt.Sprintf("%s: read %s, wrote %s", s.Resource, s.Read, s.Wrote)
}

// WroteAt records that an owner wrote a resource, and the resource version that
// the server gave to the write. Of several writes of one resource the highest
// version counts; if versions cannot be compared, the last call. A write of
// another UID replaces everything that was recorded under the owner's name. An
// empty version tells nothing, and is ignored.
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

// Ready reports whether the caches have come as far as everything that the owner
// wrote, and otherwise which one has not: of several, the one that was written
// first. What has been seen is forgotten. An owner that wrote nothing is ready,
// and so is one of another UID than the one that wrote; an empty UID asks for
// whichever wrote. A write that is recorded while Ready asks the caches is held
// against what they had come to when it was recorded.
//
// A write is given up, so that the owner goes on without having seen it, once the
// owner has waited for GiveUpAfter; at once when the cache has gone back, as after
// etcd was restored from a backup, since the version may then never come; and at
// once when a version is not a number. GivenUp counts them. Ready then returns
// true, and tells of one such write in its Stale, which is zero otherwise: the
// cache is known to be old, so list live before you act.
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

// Clear forgets what an owner wrote. An empty UID means whichever incarnation of
// it wrote. Call it when the owner is gone.
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

// GivenUp returns how many writes were given up without having been seen. A
// number that grows means that the check does not protect: a watch that is broken
// for minutes, a restored etcd, or versions that are not numbers.
func (s *ConsistencyStore) GivenUp() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.givenUp
}

// reads returns how far the caches are of what an owner wrote, by the change of
// each write: a write that changes meanwhile was not asked about.
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

// find returns the record under an owner's name, or nil where it is of another
// UID. The caller holds mu.
func (s *ConsistencyStore) find(owner Key) *writer {
	w := s.owners[owner.NamespacedName]
	if w == nil || owner.UID != "" && owner.UID != w.uid {
		return nil
	}
	return w
}

// writerFor returns the record of one incarnation of an owner, in place of any
// other's. The caller holds mu.
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

// settle drops the writes that were seen or given up, and reports whether none
// is missing, or else the first that is. What changed since the caches were asked
// was held against a cache that was at least as far on. The caller holds mu.
func (s *ConsistencyStore) settle(w *writer, reads map[uint64]string, now time.Time) (stale Stale, ready bool) {
	ready = true
	var gaveUp Stale
	left := w.writes[:0]
	for _, made := range w.writes {
		read, asked := reads[made.change]
		if !asked {
			read = made.read
		}
		if !asked && read == "" { // nothing was known then; the next look may know more
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

// look compares a write with how far its cache is. A missing one is to be looked
// at again after retryAfter: waiting once more for as long as it waited already
// doubles the time between two looks, however many others there are in between.
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
