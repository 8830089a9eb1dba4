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

// A Store holds one record for each owner, with the creations and deletions that the owner has
// started and not yet seen. The zero value is empty and ready to use. A Store must not be copied
// after first use. All methods may be called from any number of goroutines, and each method changes
// a record in one step.
//
// A record stays until it is replaced or forgotten, even if the owner is Satisfied or Expired. If
// an owner has no record, only Set, Add, Try and TryAnyway make one, and all other methods change
// nothing.
type Store[K comparable] struct {
	// Timeout is how long an owner waits before its record expires. 0 or less means DefaultTimeout.
	// Set Timeout before first use.
	Timeout time.Duration

	// Now returns the current time. Nil means time.Now. Set Now before first use. Now is called
	// while no lock is held.
	//
	// If Now is nil, changes of the wall clock do no harm, because time.Now has a monotonic clock
	// reading. If Now returns times without such a reading and the clock goes back, records expire
	// later, by as much as the clock went back. While the clock stands still, no record expires.
	Now func() time.Time

	// Jitter returns how much longer than Timeout a record waits. With Jitter, owners that lost
	// their events in the same outage do not all expire at the same moment. Each call of Set, Add,
	// Try and TryAnyway calls Jitter once, while no lock is held. A negative result counts as 0. If
	// Jitter is nil, each record waits for Timeout. Set Jitter before first use.
	//
	//	Jitter: func() time.Duration { return rand.N(30 * time.Second) }
	Jitter func() time.Duration

	shards   [shards]shard[K]
	creating index[string, K]
	deleting index[types.UID, K]
}

// Set records the creations and deletions that an owner is about to start. The new record replaces
// the owner's earlier record. Call Set before you call the API. The slices are not kept.
func (s *Store[K]) Set(key K, what Changes) {
	made := s.now()
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	s.clear(r)
	s.add(sh, r, key, what, made)
}

// Add is like Set, but keeps what was recorded before. If an owner acts again before it has seen
// everything, it waits for the old and the new changes. The timeout of the whole record starts
// again, even if the record had expired. If a total is negative, Add first sets it to 0, so that it
// does not cancel out the new changes.
func (s *Store[K]) Add(key K, what Changes) {
	made := s.now()
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	s.add(sh, r, key, what, made)
}

// Try does State and Set in one step. Try returns the state of the owner, and records the changes
// only if that state is Satisfied. If several goroutines call Try for an owner at the same time, at
// most one of them finds Satisfied and records its creations or deletions. If the state is Expired,
// nothing is recorded. In this case, list from the API server, decide again, and call Set.
func (s *Store[K]) Try(key K, what Changes) (found State, remaining time.Duration) {
	return s.try(key, what, Satisfied)
}

// try records the changes if the state of the owner is Satisfied or the given state.
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

// Lower subtracts creations and deletions that will never be seen, because a call failed or was not
// made. Names and UIDs that are not outstanding are skipped. Numbers are subtracted, even if the
// result is negative. A negative result lowers the total, but the names and UIDs stay in the
// record. The time of the record does not change.
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

// CreationObserved settles the creation of an object that was seen. If the name is expected,
// CreationObserved removes the name from the record. Otherwise, CreationObserved lowers the number
// of counted creations by one, but never below zero. The result reports whether the record changed.
func (s *Store[K]) CreationObserved(key K, name string) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && (s.takeName(r, name) || lowerOne(&r.creations))
}

// DeletionObserved settles the deletion of an object that is gone or being deleted. If the UID is
// expected, DeletionObserved removes the UID from the record. Otherwise, DeletionObserved lowers
// the number of counted deletions by one, but never below zero. The result reports whether the
// record changed.
//
// A deletion is often seen twice, first as an update with a deletionTimestamp and then as a delete
// event. So do not mix counted deletions and UIDs in one record, because the second event would
// then settle a counted deletion.
func (s *Store[K]) DeletionObserved(key K, uid types.UID) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && (s.takeUID(r, uid) || lowerOne(&r.deletions))
}

// State returns the state of an owner. If the state is Waiting, remaining is the time until the
// record expires. Put the owner back in the queue with this delay, because it may be that no event
// wakes the owner. If the state is not Waiting, remaining is 0. An owner without a record is
// Satisfied.
//
// Call State before you list the objects, not after. If you list first and an object arrives before
// you call State, then State counts the object as seen, but the list does not have it. The owner
// would then create one object too many.
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

// Get returns the outstanding creations and deletions of an owner, even if the record has expired.
// If the owner has no record, the second result is false.
func (s *Store[K]) Get(key K) (Pending, bool) {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	if r == nil {
		return Pending{}, false
	}
	return r.pending(), true
}

// Deleting reports whether the owner expects the deletion of the object with this UID. If so, the
// owner has started to delete the object, and has not yet seen the deletion.
func (s *Store[K]) Deleting(key K, uid types.UID) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && r.uids.Has(uid)
}

// OwnersOfCreation returns the owners that expect the creation of an object with this name, in the
// order in which they recorded the creation. If there are none, the result is nil. When an object
// with this name appears, call CreationObserved for each of these owners, even if the object
// belongs to another owner. Names are not unique across namespaces, so skip owners in other
// namespaces.
func (s *Store[K]) OwnersOfCreation(name string) []K { return s.creating.get(name) }

// OwnersOfDeletion returns the owners that expect the deletion of the object with this UID, in the
// order in which they recorded the deletion. If there are none, the result is nil. Use
// OwnersOfDeletion to settle the deletion of an object that lost its owner reference while it was
// being deleted. More than one owner is rare. For example, an owner may be deleted and created
// again with the same name. The new owner may then adopt and delete an object that the old owner
// was already deleting.
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

// ForgetName drops the records of all owners that have this name, with any UID. Call ForgetName if
// the API server answers NotFound, because this answer has no UID. ForgetName works if K is Key or
// types.NamespacedName. For any other type of key, use Forget.
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

// All yields every owner for which a creation or deletion is outstanding, even if the record has
// expired. The order of the owners is not specified. All takes a snapshot when the loop starts. So
// the body of the loop may call any method of the Store, but the loop does not show the changes
// that its body makes. All takes O(n) time in the number of owners.
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

// Sync settles the creations and deletions that a complete list of an owner's objects shows, and
// returns what is still outstanding. Use Sync if you include outstanding creations and deletions in
// the plan instead of waiting for them:
//
//	creations, deletions := expectations.Sync(&exp, key, live, terminating).Total()
//	missing := want - (len(live) + creations - deletions)
//
// A creation by name is settled if an object in live or terminating has this name. A deletion by
// UID is settled if no object in live has this UID. If an object has no UID, as with fake clients,
// "namespace/name" identifies the object. Counted creations and deletions stay, because a list does
// not show which objects were counted. If a deletion should be settled only when the object is
// gone, put objects that are being deleted into live.
//
// The lists must be complete, and must not be older than the list from which the deletions were
// chosen. For example, an empty list after a failed read would settle all deletions. Nil objects
// are skipped, and the lists are not kept. Sync takes O(n) time in the length of the lists.
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

// instant is when a record is made, and how long the record waits.
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

// timeBy returns now(), or the time of the system clock if now is nil.
func timeBy(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// clear empties the record r, if r is not nil. The caller holds the lock of the shard.
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

// add adds changes to the record r, and makes the record if r is nil. The caller holds the lock of
// the shard.
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

// takeName removes a name from a record, and reports whether the record had the name. The callers
// of takeName and takeUID hold the lock of the shard.
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

// shards is the number of shards, each with its own lock. There are far more shards than
// processors, because a lock is slow to take if another processor held it last.
const shards = 256

// A shard holds some of the records by the hashes of their keys. Records with the same hash form a
// chain. The lock protects the map and the records. If the lock of an index is also needed, take
// the lock of the shard first.
type shard[K comparable] struct {
	mu      sync.Mutex
	records map[uint64]*record[K]
}

// seed is the seed of all hashes, and never changes.
var seed = maphash.MakeSeed()

// hashOf returns the same hash for all keys with the same name, so that ForgetName finds the
// records of all incarnations of an owner in one chain.
func hashOf[K comparable](key *K) uint64 {
	if name := nameOf(key); name != nil {
		return hashOfName(*name)
	}
	return maphash.Comparable(seed, *key)
}

// hashOfName takes less time than maphash.Comparable. Because of the factor 31, the names a/b and
// b/a have different hashes.
func hashOfName(name types.NamespacedName) uint64 {
	return maphash.String(seed, name.Name) + 31*maphash.String(seed, name.Namespace)
}

// nameOf returns the name in a key, or nil if keys of this type have no name.
func nameOf(key any) *types.NamespacedName {
	switch k := key.(type) {
	case *Key:
		return &k.NamespacedName
	case *types.NamespacedName:
		return k
	}
	return nil
}

// lock locks the shard of a key, and returns the shard and the record of the key. If the key has no
// record, the record is nil.
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

// outstanding calls f for every record in which a creation or deletion is outstanding.
func (sh *shard[K]) outstanding(f func(K, Pending)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for r := range sh.all() {
		if r.outstanding() {
			f(r.key, r.pending())
		}
	}
}

// all yields the records of a shard. The caller holds the lock of the shard.
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
