package expectations

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// UIDTrackingControllerExpectations knows which deletions an owner expects, and,
// where the caller chooses the names, which creations. A pod that is being
// deleted is seen at least twice, as an update with a deletionTimestamp and as a
// delete; here it counts once (E20). The zero value is ready to use and empty. It
// must not be copied after first use.
//
// A record expects creations by number (ExpectCreations), or creations by name
// (ExpectCreationsOf), or deletions by UID (ExpectDeletions); each of the three
// replaces whatever was recorded for the owner, and the UIDs and names that were
// still expected with it (E19). A record stays until it is replaced or deleted.
//
// Differs from Kubernetes: deletions are told apart by UID and not by name, so a
// pod made again under its name is another pod; ExpectCreations clears the UIDs
// that are left over from a deletion, so that a late event for one of them finds
// nothing; and it does not embed ControllerExpectations, whose DeletionObserved
// would lower a count and leave the UID behind.
type UIDTrackingControllerExpectations[K comparable] struct {
	// Timeout and Now are as in ControllerExpectations.
	Timeout time.Duration
	Now     func() time.Time

	records  table[K, tracked]
	deleters deleters[K]
}

// tracked is a record that also knows what is outstanding. A name or UID goes,
// and its count is lowered, under mu: each counts once, and a copy made under mu
// agrees with itself. Locks are taken in the order tracked.mu, then deleters.mu
// or table.mu.
//
// It takes 64 bytes at most, and so is alone in a line of the processor's caches:
// owners whose counts change at the same time do not slow each other down.
type tracked struct {
	record

	mu       sync.Mutex
	creating map[string]struct{} // nil where creations are only counted
	deleting map[types.UID]struct{}
}

// byName reports whether creations are expected by name.
func (r *tracked) byName() bool { return r.creating != nil }

// ExpectCreations records that an owner expects so many creations, whatever
// their names. A negative or zero number is legal, and fulfilled at once (E16).
func (e *UIDTrackingControllerExpectations[K]) ExpectCreations(key K, adds int) {
	r := e.newRecord()
	r.store(adds, 0)
	e.replace(key, r)
}

// ExpectCreationsOf records that an owner expects the creations of these names.
// A name given twice counts once; no names at all are fulfilled at once. The
// slice is not kept.
func (e *UIDTrackingControllerExpectations[K]) ExpectCreationsOf(key K, names []string) {
	r := e.newRecord()
	r.creating = setOf(names)
	r.store(len(r.creating), 0)
	e.replace(key, r)
}

// ExpectDeletions records that an owner expects the deletions of these UIDs. A
// UID given twice counts once (E18); no UIDs at all are fulfilled at once (E24).
// The slice is not kept.
func (e *UIDTrackingControllerExpectations[K]) ExpectDeletions(key K, uids []types.UID) {
	r := e.newRecord()
	r.deleting = setOf(uids)
	r.store(0, len(r.deleting))
	e.replace(key, r)
}

// CreationObserved lowers the number of outstanding creations by one; it may
// become negative (E9). It does nothing where creations are expected by name,
// since it proves none of them, and nothing for an owner without a record.
func (e *UIDTrackingControllerExpectations[K]) CreationObserved(key K) { e.observeOne(&key) }

func (e *UIDTrackingControllerExpectations[K]) observeOne(key *K) {
	if r := e.records.get(key); r != nil && !r.byName() {
		r.add(-1, 0)
	}
}

// CreationObservedOf settles the creation of a name, and reports whether one was
// outstanding: the name where creations are expected by name, any where they are
// counted. A count is lowered in either case, as by CreationObserved.
func (e *UIDTrackingControllerExpectations[K]) CreationObservedOf(key K, name string) bool {
	r := e.records.get(&key)
	if r == nil {
		return false
	}
	if r.byName() {
		return r.created(name)
	}
	return r.add(-1, 0) >= 0
}

// DeletionObserved settles the deletion of a UID, and reports whether the owner
// expected it. Of any number of calls for one expected UID, also at the same
// time, exactly one returns true and lowers the count (E20, E22).
func (e *UIDTrackingControllerExpectations[K]) DeletionObserved(key K, uid types.UID) bool {
	r := e.records.get(&key)
	return r != nil && e.deleted(r, uid)
}

// OwnerOfDeletion returns the owner that expects the deletion of a UID: a pod
// that lost its owner reference while it was being deleted still settles its
// token. Where several owners expect it (one that was deleted and made again
// under its name may adopt and delete what its predecessor deleted), it is the
// one that came last; once DeletionObserved has settled it for that one, the one
// before is returned.
func (e *UIDTrackingControllerExpectations[K]) OwnerOfDeletion(uid types.UID) (K, bool) {
	return e.deleters.last(uid)
}

// Observe settles what a complete list of an owner's objects proves: creations
// expected by name whose name is in the list, and deletions whose UID is missing
// from it or stands in it with a deletionTimestamp. Nothing in a list can be told
// to be one of a number of creations: who lists instead of handling events
// expects creations by name.
//
// The list must be complete, and no older than the one from which the deletions
// were chosen: a list that is empty because reading failed would settle them all.
// Nil objects are skipped, nothing is kept. It costs O(n) in the length of the
// list, and O(1) where no UID and no name was expected.
func (e *UIDTrackingControllerExpectations[K]) Observe(key K, live []metav1.Object) {
	r := e.records.get(&key)
	if r == nil {
		return
	}
	gone := r.expectedDeletions()
	if len(gone) == 0 && !r.byName() {
		return
	}
	for _, obj := range live {
		if object.IsNil(obj) {
			continue
		}
		r.created(obj.GetName())
		if obj.GetDeletionTimestamp() == nil {
			delete(gone, object.ID(obj))
		}
	}
	for uid := range gone {
		e.deleted(r, uid)
	}
}

// LowerExpectations subtracts from both numbers at once, for what will never be
// seen because it failed. It takes no name or UID out: one that is observed later
// lowers its number again, below zero if need be, as in Kubernetes. Where the
// name or UID of what failed is known, CreationObservedOf and DeletionObserved
// say it exactly. It does nothing for an owner without a record (E8).
func (e *UIDTrackingControllerExpectations[K]) LowerExpectations(key K, adds, dels int) {
	if r := e.records.get(&key); r != nil {
		r.add(-bounded(adds), -bounded(dels))
	}
}

// SatisfiedExpectations is as in ControllerExpectations.
func (e *UIDTrackingControllerExpectations[K]) SatisfiedExpectations(key K) bool {
	s, _ := e.state(&key)
	return s != Waiting
}

// State is as in ControllerExpectations.
func (e *UIDTrackingControllerExpectations[K]) State(key K) (s State, remaining time.Duration) {
	return e.state(&key)
}

func (e *UIDTrackingControllerExpectations[K]) state(key *K) (State, time.Duration) {
	r := e.records.get(key)
	if r == nil {
		return Satisfied, 0
	}
	return r.state(e.Timeout, e.Now)
}

// DeleteExpectations forgets an owner with every name and UID that it expected
// (E21). It does nothing where there is no record.
func (e *UIDTrackingControllerExpectations[K]) DeleteExpectations(key K) {
	e.retire(e.records.remove(&key))
}

// All is as in ControllerExpectations.
func (e *UIDTrackingControllerExpectations[K]) All() iter.Seq2[K, Pending] {
	return all(&e.records, (*tracked).pending)
}

func (e *UIDTrackingControllerExpectations[K]) newRecord() *tracked {
	return &tracked{record: record{since: instant(e.Now)}}
}

// replace makes r the record of the key. r stays locked until its UIDs can be
// found, so that nobody settles one, or retires r, before that.
func (e *UIDTrackingControllerExpectations[K]) replace(key K, r *tracked) {
	r.mu.Lock()
	old := e.records.swap(&key, r)
	e.deleters.add(key, r)
	r.mu.Unlock()
	e.retire(old)
}

// retire makes the UIDs of a record that was taken out of the table unknown.
// Whoever found the record there just before may still settle one: that counts as
// having come before.
func (e *UIDTrackingControllerExpectations[K]) retire(r *tracked) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.deleting {
		e.deleters.remove(uid, r)
	}
}

func (e *UIDTrackingControllerExpectations[K]) deleted(r *tracked, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !take(r.deleting, uid) {
		return false
	}
	r.add(0, -1)
	e.deleters.remove(uid, r)
	return true
}

func (r *tracked) created(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !take(r.creating, name) {
		return false
	}
	r.add(-1, 0)
	return true
}

func (r *tracked) expectedDeletions() map[types.UID]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.deleting)
}

func (r *tracked) pending() Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.record.pending()
	p.Creating = slices.Sorted(maps.Keys(r.creating))
	p.Deleting = slices.Sorted(maps.Keys(r.deleting))
	return p
}

// deleters knows which records expect the deletion of a UID.
type deleters[K comparable] struct {
	mu sync.Mutex
	of map[types.UID][]deleter[K] // in the order they came; never empty
}

type deleter[K comparable] struct {
	key    K
	record *tracked
}

func (d *deleters[K]) add(key K, r *tracked) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = make(map[types.UID][]deleter[K])
	}
	alone := []deleter[K]{{key, r}} // shared by many UIDs: it is full, so appending copies it
	for uid := range r.deleting {
		if before := d.of[uid]; len(before) > 0 {
			d.of[uid] = append(before, alone[0])
		} else {
			d.of[uid] = alone
		}
	}
}

// remove does nothing where it was done already.
func (d *deleters[K]) remove(uid types.UID, r *tracked) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rs := d.of[uid]
	switch i := slices.IndexFunc(rs, func(d deleter[K]) bool { return d.record == r }); {
	case i < 0:
	case len(rs) == 1:
		delete(d.of, uid)
	default:
		d.of[uid] = slices.Delete(rs, i, i+1)
	}
}

func (d *deleters[K]) last(uid types.UID) (key K, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rs := d.of[uid]
	if len(rs) == 0 {
		return key, false
	}
	return rs[len(rs)-1].key, true
}

func setOf[T comparable](list []T) map[T]struct{} {
	set := make(map[T]struct{}, len(list))
	for _, x := range list {
		set[x] = struct{}{}
	}
	return set
}

// take removes a member of a set, and reports whether it was there.
func take[T comparable](set map[T]struct{}, x T) bool {
	if _, ok := set[x]; !ok {
		return false
	}
	delete(set, x)
	return true
}
