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

// A Store holds one record for each owner. The record contains the creations and deletions that the
// owner has started but not yet seen. The zero value is empty and ready to use. A Store must not be
// copied after first use. All methods are safe for concurrent use, and each method changes a record
// in one step.
//
// A record stays until it is replaced or forgotten, even if the owner is Satisfied or Expired. If
// an owner has no record, Set, Add, Try and TryAnyway make a record. All other methods have no
// effect on an owner without a record.
type Store[K comparable] struct {
	// Timeout is the time after which a record expires. A value of 0 or less means DefaultTimeout.
	// Set Timeout before first use.
	Timeout time.Duration

	// Now returns the current time. Nil means time.Now. Set Now before first use. The Store does
	// not hold a lock while it calls Now.
	//
	// If Now is nil, changes of the wall clock do not affect records, because the results of
	// time.Now contain a monotonic clock reading. Suppose that Now returns times without a
	// monotonic clock reading. If the clock then goes back, records expire later by the same
	// amount. While the clock stands still, no record expires.
	Now func() time.Time

	// Jitter returns a duration that is added to the Timeout of a record. Without Jitter, owners
	// that lost their events in the same outage all expire at the same time. Set, Add, Try and
	// TryAnyway each call Jitter once, and do not hold a lock during the call. A negative result
	// counts as 0. If Jitter is nil, nothing is added to Timeout. Set Jitter before first use.
	//
	//	Jitter: func() time.Duration { return rand.N(30 * time.Second) }
	Jitter func() time.Duration

	shards   [shards]shard[K]
	creating index[string, K]
	deleting index[types.UID, K]
}

// Set records the creations and deletions that an owner is about to start. The new record replaces
// the owner's earlier record. Call Set before you make the API calls. Set does not keep the slices.
func (s *Store[K]) Set(key K, what Changes) {
	made := s.now()
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	s.clear(r)
	s.add(sh, r, key, what, made)
}

// Add is like Set, but keeps the changes that are already recorded. The owner then waits for both
// the old and the new changes. The timeout of the whole record starts again, even if the record has
// expired. If the total of the old creations or deletions is negative, Add first sets this total to
// 0. Therefore a negative total of old changes does not reduce the number of new changes.
func (s *Store[K]) Add(key K, what Changes) {
	made := s.now()
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	s.add(sh, r, key, what, made)
}

// Try combines State and Set in one step. Try returns the state of the owner, and records the
// changes only if the state is Satisfied. If several goroutines call Try for the same owner at the
// same time, at most one of them records creations or deletions. If the state is Expired, Try
// records nothing, so list from the API server, plan again, and call Set.
func (s *Store[K]) Try(key K, what Changes) (found State, remaining time.Duration) {
	return s.try(key, what, Satisfied)
}

// try implements Try and TryAnyway. It records the changes if the owner's state is Satisfied or
// equal to the given state.
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

// Lower subtracts the creations and deletions of API calls that failed or were not made. The cache
// will never show these changes. Lower skips names and UIDs that are not outstanding. The number of
// counted creations may become negative. If this number is negative, the total of creations is
// smaller than the number of names in the record, but these names stay in the record. The same
// applies to deletions and UIDs. The timeout of the record does not start again.
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

// CreationObserved records that a created object has appeared in the cache. If the owner expects
// the name, CreationObserved removes the name from the record. If the owner does not expect the
// name, CreationObserved lowers the number of counted creations by one, but never below zero. The
// result reports whether the record changed.
func (s *Store[K]) CreationObserved(key K, name string) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && (s.takeName(r, name) || lowerOne(&r.creations))
}

// DeletionObserved records that an object is being deleted or no longer exists. If the owner
// expects the UID, DeletionObserved removes the UID from the record. If the owner does not expect
// the UID, DeletionObserved lowers the number of counted deletions by one, but never below zero.
// The result reports whether the record changed.
//
// Do not mix counted deletions and UIDs in one record. The deletion of an object often causes two
// events. The first event is an update with a deletionTimestamp, and the second event is the delete
// event. When you call DeletionObserved for the first event, the UID is removed from the record. If
// the record also contains counted deletions, the call for the second event would lower the number
// of counted deletions.
func (s *Store[K]) DeletionObserved(key K, uid types.UID) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && (s.takeUID(r, uid) || lowerOne(&r.deletions))
}

// State returns the state of an owner. If the state is Waiting, the second result is the time until
// the record expires. Requeue the owner after this time, because the missing events might never
// arrive. In any other state, the second result is 0. An owner without a record is Satisfied.
//
// Call State before you list the objects, not after. Otherwise, an object may appear in the cache
// after you list and before you call State. The Store then counts the new object as seen, but your
// list does not contain the new object. The owner then creates one object too many.
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

// Deleting reports whether the owner has started to delete the object with this UID but has not yet
// seen the deletion.
func (s *Store[K]) Deleting(key K, uid types.UID) bool {
	sh, r := s.lock(&key)
	defer sh.mu.Unlock()
	return r != nil && r.uids.Has(uid)
}

// OwnersOfCreation returns the owners that expect the creation of an object with this name. The
// owner whose expectation is oldest comes first. If there are no such owners, the result is nil.
// When an object with this name appears, call CreationObserved for each of these owners, even if
// the object belongs to another owner. Names are not unique across namespaces, so skip owners in
// other namespaces.
func (s *Store[K]) OwnersOfCreation(name string) []K { return s.creating.get(name) }

// OwnersOfDeletion returns the owners that expect the deletion of the object with this UID. The
// owner whose expectation is oldest comes first. If there are no such owners, the result is nil. If
// an object lost its owner reference while it was being deleted, use OwnersOfDeletion to find the
// owners for DeletionObserved. In rare cases the result contains more than one owner, for example
// if an owner was deleted and created again with the same name. The new owner may adopt and delete
// an object that the old owner was already deleting.
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
// the API server returns NotFound for an owner, because this error does not contain the UID of the
// owner. ForgetName works only if K is Key or types.NamespacedName. For all other types of keys,
// use Forget.
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

// All iterates over the owners that have an outstanding creation or deletion. These include the
// owners whose records have expired. The order of the owners is not specified. The iterator takes a
// snapshot when the loop starts. The body of the loop may call any method of the Store, but the
// iterator does not show changes that are made during the loop. All takes O(n) time in the number
// of owners.
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

// Sync updates an owner's record from lists of the owner's objects. If the lists show a creation or
// deletion, Sync removes it from the record. Sync returns the changes that are still outstanding.
// Use Sync if your plan takes outstanding creations and deletions into account instead of waiting
// for them:
//
//	creations, deletions := expectations.Sync(&exp, key, live, terminating).Total()
//	missing := want - (len(live) + creations - deletions)
//
// A creation by name counts as seen if either list contains an object with this name. A deletion by
// UID counts as seen if the argument live contains no object with this UID. An object without a
// UID, for example from a fake client, is identified by "namespace/name". Counted creations and
// deletions stay in the record, because the lists do not show which objects were counted. If a
// deletion must stay in the record until the object is gone, the argument live must also contain
// the terminating objects.
//
// The lists must be complete. They must not be older than the list that you used to choose the
// objects to delete. For example, if a read fails and you pass an empty list, all deletions count
// as seen. Nil objects are skipped. Sync does not keep the lists. A nil Store has no records. Sync
// takes O(n) time in the length of the lists.
func Sync[K comparable, T metav1.Object](s *Store[K], key K, live, terminating []T) Pending {
	if s == nil {
		return Pending{}
	}
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

// An instant holds the time at which a record is made, and the timeout of the record.
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

// timeBy returns now(), or time.Now() if now is nil.
func timeBy(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// clear removes all changes from the record r and from the indexes. If r is nil, clear does
// nothing. The caller holds the lock of the shard.
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

// takeName removes a name from a record, and reports whether the record contained the name. The
// callers of takeName and takeUID hold the lock of the shard.
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

// shards is the number of shards of a Store. Each shard has its own lock. There are far more shards
// than processors, because a lock that moves to another processor is slow to acquire.
const shards = 256

// A shard holds some of the records of a Store. The map is keyed by the hash of a record's key.
// Records with the same hash form a chain. The lock mu protects the map and the records. Code that
// also needs the lock of an index must acquire the lock of the shard first.
type shard[K comparable] struct {
	mu      sync.Mutex
	records map[uint64]*record[K]
}

// seed is the seed of all hashes in this process.
var seed = maphash.MakeSeed()

// hashOf returns the same hash for all keys with the same name. Therefore, ForgetName finds the
// records of all incarnations of an owner in one chain.
func hashOf[K comparable](key *K) uint64 {
	if name := nameOf(key); name != nil {
		return hashOfName(*name)
	}
	return maphash.Comparable(seed, *key)
}

// hashOfName returns the hash of a name, and is faster than maphash.Comparable. The factor 31
// ensures that the names a/b and b/a have different hashes.
func hashOfName(name types.NamespacedName) uint64 {
	return maphash.String(seed, name.Name) + 31*maphash.String(seed, name.Namespace)
}

// nameOf returns the namespace and name in a key, or nil if keys of this type do not contain them.
func nameOf(key any) *types.NamespacedName {
	switch k := key.(type) {
	case *Key:
		return &k.NamespacedName
	case *types.NamespacedName:
		return k
	}
	return nil
}

// lock locks the shard of a key, and returns the shard and the record of the key. The returned
// record is nil if the key has no record.
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

// outstanding invokes f for every record that has an outstanding creation or deletion.
func (sh *shard[K]) outstanding(f func(K, Pending)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for r := range sh.all() {
		if r.outstanding() {
			f(r.key, r.pending())
		}
	}
}

// all iterates over the records of a shard. The caller holds the lock of the shard.
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
