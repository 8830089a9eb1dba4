// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	"hash/maphash"
	"iter"
	"math"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// A Store holds one record for each owner, of what it created and deleted and has not seen yet. The
// zero value is ready to use and empty. It must not be copied after first use. All methods may be
// called from any number of goroutines, and each method changes a record in one step.
//
// A record stays until it is replaced or forgotten, even if it is satisfied or expired. If an owner
// has no record, all methods except Set, Add, Try and TryAnyway do nothing.
type Store[K comparable] struct {
	// Timeout is how long an owner waits. 0 or less means DefaultTimeout. Set it before first use.
	Timeout time.Duration

	// Now returns the time. Nil means time.Now. Set it before first use. It is called with no lock
	// held.
	//
	// If Now is nil, changes of the wall clock do no harm, because time.Now has a monotonic
	// reading. If the times that Now returns have none and the clock goes back, records expire
	// later, by as much as the clock went back. While the clock stands still, nothing expires.
	Now func() time.Time

	// Jitter returns how much longer than Timeout a record waits. With it, owners that lost their
	// events in the same outage do not all expire at the same moment. Set, Add, Try and TryAnyway
	// call it once, with no lock held. Less than 0 means 0, and nil means that no record waits
	// longer. Set it before first use.
	//
	//	Jitter: func() time.Duration { return rand.N(30 * time.Second) }
	Jitter func() time.Duration

	shards   [shards]shard[K]
	creating index[string, K]
	deleting index[types.UID, K]
}

// Set records what an owner is about to do, and replaces what was recorded
// before. Call it before you call the API. The slices are not kept.
func (s *Store[K]) Set(key K, what Changes) {
	made := s.now()
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	s.clear(r)
	s.add(sh, r, key, what, made)
}

// Add is Set, but keeps what was recorded before. An owner that acts again before it has seen
// everything waits for both. The timeout of the whole record starts again, even if the record had
// expired. A negative total is set to 0 first, so that it hides none of the new changes.
func (s *Store[K]) Add(key K, what Changes) {
	made := s.now()
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	s.add(sh, r, key, what, made)
}

// Try is State and Set in one step. It returns the state of the owner, and records what the owner
// is about to do only if that state is Satisfied. If several callers try at the same time, at most
// one finds Satisfied. If the state is Expired, nothing is recorded, so list live, decide again,
// and call Set.
func (s *Store[K]) Try(key K, what Changes) (found State, remaining time.Duration) {
	return s.try(key, what, Satisfied)
}

// try records what the owner is about to do if its state is Satisfied or the given one.
func (s *Store[K]) try(key K, what Changes, or State) (found State, remaining time.Duration) {
	made := s.now()
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	if r.outstanding() {
		if found, remaining = after(made.now.Sub(r.since), r.patience); found != or {
			return found, remaining
		}
	}
	s.clear(r)
	s.add(sh, r, key, what, made)
	return found, 0
}

// Lower subtracts what will never be seen, because the call failed or was not made. Names and UIDs
// that are not outstanding are skipped. Numbers are subtracted, even below zero. A creation that is
// known by name then keeps its name, but the total is one less. The time of the record stays.
func (s *Store[K]) Lower(key K, what Changes) {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	if r == nil {
		return
	}
	r.creations = plus(r.creations, -int64(bounded(what.Creations)))
	r.deletions = plus(r.deletions, -int64(bounded(what.Deletions)))
	for _, name := range what.Creating {
		if !s.takeName(r, name) && name == "" {
			r.creations = plus(r.creations, -1)
		}
	}
	for _, uid := range what.Deleting {
		if !s.takeUID(r, uid) && uid == "" {
			r.deletions = plus(r.deletions, -1)
		}
	}
}

// CreationObserved settles the creation of an object that was seen. If the name
// is expected, CreationObserved removes it. If not, it lowers the number of
// creations that are only counted by one, but never below zero. It reports
// whether it changed anything.
func (s *Store[K]) CreationObserved(key K, name string) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && (s.takeName(r, name) || lowerOne(&r.creations))
}

// DeletionObserved settles the deletion of an object that is gone, or is being deleted. If the UID
// is expected, DeletionObserved removes it. If not, it lowers the number of deletions that are only
// counted by one, but never below zero. It reports whether it changed anything.
//
// A deletion is often seen twice, as an update with a deletionTimestamp and as a delete. So do not
// mix counted deletions with UIDs in one record, or the second event would settle a counted one.
func (s *Store[K]) DeletionObserved(key K, uid types.UID) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && (s.takeUID(r, uid) || lowerOne(&r.deletions))
}

// State returns the state of an owner. If it is Waiting, remaining is the time after which the
// record will be Expired. Put the owner back in the queue for that time, since no event may wake
// it. Otherwise remaining is 0. An owner without a record is Satisfied.
//
// Call State before you list the objects, not after. If an object arrived between the list and
// State, State would count it as seen, but the list would not have it. The owner would then create
// one too many.
func (s *Store[K]) State(key K) (state State, remaining time.Duration) {
	sh, r := s.lock(&key)
	if !r.outstanding() {
		sh.mu.Unlock()
		return Satisfied, 0
	}
	since, patience := r.since, r.patience
	sh.mu.Unlock()
	if s.Now == nil {
		return after(time.Since(since), patience)
	}
	return after(s.Now().Sub(since), patience)
}

// Get returns what is outstanding for an owner, expired or not, and whether
// there is a record at all.
func (s *Store[K]) Get(key K) (Pending, bool) {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	if r == nil {
		return Pending{}, false
	}
	return r.pending(), true
}

// Deleting reports whether the owner expects the deletion of this UID. If so, it has started to
// delete the object, and has not seen it go.
func (s *Store[K]) Deleting(key K, uid types.UID) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && r.uids.Has(uid)
}

// OwnersOfCreation returns the owners that expect the creation of an object with this name, in the
// order in which they recorded it. It returns nil if there are none. The new object settles their
// creations, even if it belongs to another owner. Names are not unique across namespaces, so
// compare the namespaces of the owners.
func (s *Store[K]) OwnersOfCreation(name string) []K { return s.creating.get(name) }

// OwnersOfDeletion returns the owners that expect the deletion of this UID, in the order in which
// they recorded it. It returns nil if there are none. With it, an object that lost its owner
// reference while it was being deleted still settles the deletion. There is seldom more than one.
// For example, an owner that was created again with the same name may adopt and delete what the
// former one already deletes.
func (s *Store[K]) OwnersOfDeletion(uid types.UID) []K { return s.deleting.get(uid) }

// Forget drops the record of an owner.
func (s *Store[K]) Forget(key K) {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	if r != nil {
		s.clear(r)
		sh.remove(r)
	}
}

// ForgetName drops the records of all owners that have this name, with any UID. Call it if the API
// server says NotFound, because that answer has no UID. It works if K is Key or
// types.NamespacedName. For any other type of key use Forget.
func (s *Store[K]) ForgetName(name types.NamespacedName) {
	hash := hashOfName(name)
	sh := &s.shards[hash%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for r := sh.records[hash]; r != nil; r = r.next {
		if found := nameOf(&r.key); found != nil && *found == name {
			s.clear(r)
			sh.remove(r)
		}
	}
}

// All yields every owner for which something is outstanding, expired or not, in no particular
// order. It yields from a snapshot taken when the loop starts. So the body of the loop may call any
// method of the store, and does not see its own changes. It costs O(n) in the number of owners.
func (s *Store[K]) All() iter.Seq2[K, Pending] {
	return func(yield func(K, Pending) bool) {
		var keys []K
		var snapshot []Pending
		for i := range s.shards {
			s.shards[i].outstanding(func(key K, p Pending) {
				keys, snapshot = append(keys, key), append(snapshot, p)
			})
		}
		for i, key := range keys {
			if !yield(key, snapshot[i]) {
				return
			}
		}
	}
}

// Sync settles what a complete list of an owner's objects proves, and returns what is still
// outstanding. Use it if you plan with what is outstanding instead of waiting for it:
//
//	creations, deletions := expectations.Sync(&exp, key, live, terminating).Total()
//	missing := want - (len(live) + creations - deletions)
//
// A creation by name is settled if the name is in live or in terminating. A deletion by UID is
// settled if the UID is not in live. An object without a UID, as fake clients make them, is known
// by "namespace/name". Counted creations and deletions stay, since a list does not show which
// objects were counted. If a deletion should count only when the object is gone, pass objects that
// are being deleted in live.
//
// The lists must be complete, and no older than the one from which the deletions were chosen. For
// example, an empty list after a failed read would settle all deletions. Nil objects are skipped,
// and the lists are not kept. It costs O(n) in the length of the lists.
func Sync[K comparable, T metav1.Object](s *Store[K], key K, live, terminating []T) Pending {
	pending, _ := s.Get(key)
	creating, gone := sets.New(pending.Creating...), sets.New(pending.Deleting...)
	var seen Changes
	for i, list := range [][]T{live, terminating} {
		for _, obj := range list {
			if object.IsNil(obj) {
				continue
			}
			if creating.Has(obj.GetName()) {
				seen.Creating = append(seen.Creating, obj.GetName())
			}
			if i == 0 {
				gone.Delete(object.ID(obj))
			}
		}
	}
	seen.Deleting = gone.UnsortedList()
	s.Lower(key, seen)
	pending, _ = s.Get(key)
	return pending
}

// instant is when a record is made, and how long it waits.
type instant struct {
	now      time.Time
	patience time.Duration
}

func (s *Store[K]) now() instant {
	patience := s.Timeout
	if patience <= 0 {
		patience = DefaultTimeout
	}
	if s.Jitter != nil {
		patience += min(max(s.Jitter(), 0), math.MaxInt64-patience)
	}
	return instant{timeBy(s.Now), patience}
}

// timeBy returns the time of a clock that may be nil.
func timeBy(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// clear empties a record, if there is one. The caller holds the lock of the shard.
func (s *Store[K]) clear(r *record[K]) {
	if r == nil {
		return
	}
	for name := range r.names {
		s.creating.remove(name, r.key)
	}
	for uid := range r.uids {
		s.deleting.remove(uid, r.key)
	}
	*r = record[K]{key: r.key, next: r.next}
}

// add adds to a record, and makes it if there is none. The caller holds the lock of the shard.
func (s *Store[K]) add(sh *shard[K], r *record[K], key K, what Changes, made instant) {
	if r == nil {
		r = sh.make(key)
	}
	r.since, r.patience = made.now, made.patience
	r.creations = max(r.creations, -int32(len(r.names)))
	r.deletions = max(r.deletions, -int32(len(r.uids)))
	names, unnamed := insert(&r.names, what.Creating)
	uids, unknown := insert(&r.uids, what.Deleting)
	r.creations = plus(r.creations, int64(bounded(what.Creations))+int64(unnamed))
	r.deletions = plus(r.deletions, int64(bounded(what.Deletions))+int64(unknown))
	s.creating.add(key, names...)
	s.deleting.add(key, uids...)
}

// takeName removes a name from a record, and reports whether it was there. The caller holds the
// lock of the shard, as for takeUID.
func (s *Store[K]) takeName(r *record[K], name string) bool {
	if !r.names.Has(name) {
		return false
	}
	r.names.Delete(name)
	s.creating.remove(name, r.key)
	return true
}

func (s *Store[K]) takeUID(r *record[K], uid types.UID) bool {
	if !r.uids.Has(uid) {
		return false
	}
	r.uids.Delete(uid)
	s.deleting.remove(uid, r.key)
	return true
}

// shards is the number of locks. It is far larger than the number of processors, because a lock
// that another processor had last is slow to take.
const shards = 256

// A shard holds some of the records by the hashes of their keys. Records with the same hash are
// chained. The lock also covers the records, and is taken before that of an index.
type shard[K comparable] struct {
	mu      sync.Mutex
	records map[uint64]*record[K]
}

// seed is the seed of all hashes, and never changes.
var seed = maphash.MakeSeed()

// hashOf returns one hash for all keys with the same name, so that ForgetName finds
// the records of all incarnations in one chain.
func hashOf[K comparable](key *K) uint64 {
	if name := nameOf(key); name != nil {
		return hashOfName(*name)
	}
	return maphash.Comparable(seed, *key)
}

// hashOfName takes less time than maphash.Comparable. The factor gives a/b and b/a different
// hashes.
func hashOfName(name types.NamespacedName) uint64 {
	return maphash.String(seed, name.Name) + 31*maphash.String(seed, name.Namespace)
}

// nameOf returns the name in a key, or nil if keys of that type have none.
func nameOf(key any) *types.NamespacedName {
	switch k := key.(type) {
	case *Key:
		return &k.NamespacedName
	case *types.NamespacedName:
		return k
	}
	return nil
}

// lock returns the shard of a key, locked, and the record of the key, or nil.
func (s *Store[K]) lock(key *K) (*shard[K], *record[K]) {
	hash := hashOf(key)
	sh := &s.shards[hash%shards]
	sh.mu.Lock()
	r := sh.records[hash]
	for r != nil && r.key != *key {
		r = r.next
	}
	return sh, r
}

func (sh *shard[K]) make(key K) *record[K] {
	if sh.records == nil {
		sh.records = make(map[uint64]*record[K])
	}
	hash := hashOf(&key)
	r := &record[K]{key: key, next: sh.records[hash]}
	sh.records[hash] = r
	return r
}

// remove removes a record from its chain.
func (sh *shard[K]) remove(r *record[K]) {
	hash := hashOf(&r.key)
	first := sh.records[hash]
	switch {
	case first == r && r.next == nil:
		delete(sh.records, hash)
		return
	case first == r:
		sh.records[hash] = r.next
		return
	}
	for first.next != r {
		first = first.next
	}
	first.next = r.next
}

// outstanding calls f with every record in which something is outstanding.
func (sh *shard[K]) outstanding(f func(K, Pending)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for r := range sh.all() {
		if r.outstanding() {
			f(r.key, r.pending())
		}
	}
}

// all yields the records of a shard. The caller holds its lock.
func (sh *shard[K]) all() iter.Seq[*record[K]] {
	return func(yield func(*record[K]) bool) {
		for _, r := range sh.records {
			for ; r != nil; r = r.next {
				if !yield(r) {
					return
				}
			}
		}
	}
}
