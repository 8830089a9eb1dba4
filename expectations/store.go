package expectations

import (
	"iter"
	"math"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// A Store holds one record for each owner: what it created and deleted and has
// not seen yet. The zero value is ready to use and empty. It must not be copied
// after first use. All methods may be called from any number of goroutines, and
// what each of them does to one record is one step.
//
// A record stays until it is replaced or forgotten, also if it is satisfied or
// expired. All methods but Set, Add and Try do nothing for an owner without one.
type Store[K comparable] struct {
	// Timeout is how long an owner waits: 0 or less means DefaultTimeout. Set it
	// before first use.
	Timeout time.Duration

	// Now tells the time: nil means time.Now. Set it before first use. It is
	// called with no lock held.
	//
	// Steps of the wall clock do no harm with a nil Now, since time.Now carries a
	// monotonic reading. With a clock without one, a record whose instant lies in
	// the future counts as just made, so it expires late by as much as the clock
	// went back; and while the clock stands still nothing expires.
	Now func() time.Time

	// Jitter returns how much longer than Timeout a record waits: it is called
	// once each time a record is made or added to, with no lock held. Owners that
	// lost their events in the same outage then do not expire at the same moment.
	// Less than 0 means 0. nil: no record waits longer. Set it before first use.
	//
	//	Jitter: func() time.Duration { return rand.N(30 * time.Second) }
	Jitter func() time.Duration

	shards   [shards]shard[K]
	named    index[types.NamespacedName, K]
	creating index[string, K]
	deleting index[types.UID, K]
}

// Set records what an owner is about to do, in place of whatever was recorded
// for it. Call it before the API. The slices are not kept.
func (s *Store[K]) Set(key K, what Changes) {
	made := s.now()
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	s.clear(sh, key)
	s.add(sh, key, what, made)
}

// Add is Set, but keeps what was recorded before: an owner that acts again
// before it has seen everything waits for both. The whole record waits from now
// on, also if it had expired. What was seen beyond what was expected is
// forgotten first, so that it does not stand for any of the new.
func (s *Store[K]) Add(key K, what Changes) {
	made := s.now()
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	s.add(sh, key, what, made)
}

// Try is State and Set in one step: it tells where the owner stands, and only if
// that is Satisfied it records what the owner is about to do. Of several callers
// at the same time at most one finds Satisfied. If it is Expired, nothing is
// recorded either: list live, and Set what is then to be done.
func (s *Store[K]) Try(key K, what Changes) (found State, remaining time.Duration) {
	made := s.now()
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	if r := sh.get(&key); r.outstanding() {
		return after(made.now.Sub(r.since), r.patience)
	}
	s.clear(sh, key)
	s.add(sh, key, what, made)
	return Satisfied, 0
}

// Lower takes back what will never be seen, because the call failed or was not
// made. Names and UIDs that are not outstanding are skipped. Numbers are
// subtracted, below zero if need be: lowered by number, a creation by name stays
// known by its name, and the total counts one less. The time of the record stays.
func (s *Store[K]) Lower(key K, what Changes) {
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	r := sh.get(&key)
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

// CreationObserved settles the creation of an object that was seen. It removes the
// name if that is expected; if not, it takes one from the number of creations that
// are only counted, but never below zero. It reports whether it did either.
func (s *Store[K]) CreationObserved(key K, name string) bool {
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	r := sh.get(&key)
	return r != nil && (s.takeName(r, name) || lowerOne(&r.creations))
}

// DeletionObserved settles the deletion of an object that is gone, or is being
// deleted. It removes the UID if that is expected; if not, it takes one from the
// number of deletions that are only counted, but never below zero. It reports
// whether it did either. A deletion by UID is often seen twice, as an update and
// as a delete: count none beside it, or the second takes one of those.
func (s *Store[K]) DeletionObserved(key K, uid types.UID) bool {
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	r := sh.get(&key)
	return r != nil && (s.takeUID(r, uid) || lowerOne(&r.deletions))
}

// State tells where an owner stands, and how long it has to wait at most: while
// it is Waiting, the record will be Expired once remaining has passed, which is
// just after the timeout. Otherwise remaining is 0. Nothing else wakes the owner
// then, so it has to be put back in the queue for that time. An owner without a
// record is Satisfied.
//
// Look before listing the objects, not after: one that comes in between must not
// be missing from the list and yet be accounted for.
func (s *Store[K]) State(key K) (state State, remaining time.Duration) {
	sh := s.lock(&key)
	r := sh.get(&key)
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
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	r := sh.get(&key)
	if r == nil {
		return Pending{}, false
	}
	return r.pending(), true
}

// Deleting reports whether the owner expects the deletion of that UID: whether
// the object is one that it chose to delete and has not seen go.
func (s *Store[K]) Deleting(key K, uid types.UID) bool {
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	r := sh.get(&key)
	return r != nil && r.uids.Has(uid)
}

// OwnersOfCreation returns the owners that expect a creation by that name, in
// the order in which they came: whoever owns the object that was created, it
// settles theirs. Owners in different namespaces may expect the same name. It
// returns nil as a rule.
func (s *Store[K]) OwnersOfCreation(name string) []K { return s.creating.get(name) }

// OwnersOfDeletion returns the owners that expect the deletion of that UID, in
// the order in which they came: an object that lost its owner reference while it
// was being deleted still settles the deletion. There is one as a rule; an owner
// that was deleted and made again under its name may adopt and delete what its
// predecessor deleted.
func (s *Store[K]) OwnersOfDeletion(uid types.UID) []K { return s.deleting.get(uid) }

// Forget drops the record of an owner.
func (s *Store[K]) Forget(key K) {
	sh := s.lock(&key)
	defer sh.mu.Unlock()
	if sh.get(&key) == nil {
		return
	}
	s.clear(sh, key)
	sh.remove(key)
	if name, ok := nameOf(key); ok {
		s.named.remove(name, key)
	}
}

// ForgetName drops the records of all owners of that name, whatever their UIDs:
// that an owner is not found tells no UID. It finds keys that are a Key or a
// types.NamespacedName; an owner under any other kind of key has to be forgotten
// by its key.
func (s *Store[K]) ForgetName(name types.NamespacedName) {
	for _, key := range s.named.get(name) {
		s.Forget(key)
	}
}

// All yields every owner for which something is outstanding, expired or not, in
// no particular order, each as it is at one instant. It yields from a snapshot
// taken when the loop starts: the body may call anything, and sees nothing of
// what it changes. It costs O(n) in the number of owners.
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

// Sync settles what a complete list of an owner's objects proves, and returns
// what is still outstanding, for callers that plan with it instead of waiting:
//
//	creations, deletions := expectations.Sync(&exp, key, live, terminating).Total()
//	missing := want - (len(live) + creations - deletions)
//
// A creation by name is settled if the name is in either list; a deletion by UID
// if the UID is not among the live; an object without UID, as fake clients make
// them, goes by "namespace/name" there. What is only counted is left alone, since
// nothing in a list can be told to be one of a number. Objects whose deletion
// does not count before they are gone belong to the live.
//
// The lists must be complete, and no older than the one from which the deletions
// were chosen: if reading failed, an empty list would settle them all. Nil
// objects are skipped, nothing is kept. It costs O(n) in the length of the lists.
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

// timeBy returns the time by a clock that may be nil.
func timeBy(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// clear takes everything out of a record, if there is one. The caller holds the
// lock of the shard.
func (s *Store[K]) clear(sh *shard[K], key K) {
	r := sh.get(&key)
	if r == nil {
		return
	}
	for name := range r.names {
		s.creating.remove(name, key)
	}
	for uid := range r.uids {
		s.deleting.remove(uid, key)
	}
	*r = record[K]{key: r.key}
}

// add adds to a record, which is made if need be. The caller holds the lock of
// the shard.
func (s *Store[K]) add(sh *shard[K], key K, what Changes, made instant) {
	r := sh.get(&key)
	if r == nil {
		r = sh.make(key)
		if name, ok := nameOf(key); ok {
			s.named.add(key, name)
		}
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

// takeName takes a name out of a record, and reports whether it was there. The
// caller holds the lock of the shard, as for takeUID.
func (s *Store[K]) takeName(r *record[K], name string) bool {
	if !r.names.Has(name) {
		return false
	}
	r.names.Delete(name)
	s.creating.remove(name, *r.key)
	return true
}

func (s *Store[K]) takeUID(r *record[K], uid types.UID) bool {
	if !r.uids.Has(uid) {
		return false
	}
	r.uids.Delete(uid)
	s.deleting.remove(uid, *r.key)
	return true
}

// shards is how many there are: more than processors, so that two goroutines
// seldom want the same one.
const shards = 64

// A shard holds the records of some of the owners. Its lock covers the records
// too, and is taken before that of an index.
type shard[K comparable] struct {
	mu      sync.Mutex
	records map[K]*record[K]
	// last is the record found last, or nil: the events of one owner come in a
	// row, and a look follows an observation. Comparing keys is faster than
	// hashing them.
	last *record[K]
	_    [40]byte // alone in a line of the processor's caches
}

// lock returns the shard of a key, locked.
func (s *Store[K]) lock(key *K) *shard[K] {
	sh := &s.shards[spread(key)%shards]
	sh.mu.Lock()
	return sh
}

// spread mixes the last two characters of a key, which are as good as random in
// UIDs and in the names that Deployments choose. Keys of other types share one
// shard.
func spread(key any) uint8 {
	var id string
	switch k := key.(type) {
	case *Key:
		id = string(k.UID)
	case *types.NamespacedName:
		id = k.Name
	case *string:
		id = *k
	}
	if len(id) < 2 {
		return 0
	}
	return id[len(id)-1] + 31*id[len(id)-2]
}

// get returns the record of a key, or nil.
func (sh *shard[K]) get(key *K) *record[K] {
	if sh.last != nil && *sh.last.key == *key {
		return sh.last
	}
	r := sh.records[*key]
	if r != nil {
		sh.last = r
	}
	return r
}

func (sh *shard[K]) make(key K) *record[K] {
	if sh.records == nil {
		sh.records = make(map[K]*record[K])
	}
	r := &record[K]{key: &key}
	sh.records[key] = r
	return r
}

func (sh *shard[K]) remove(key K) {
	delete(sh.records, key)
	sh.last = nil
}

// outstanding calls f with every record in which something is outstanding.
func (sh *shard[K]) outstanding(f func(K, Pending)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, r := range sh.records {
		if r.outstanding() {
			f(key, r.pending())
		}
	}
}
