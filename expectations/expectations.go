// Package expectations remembers what a controller has started but not yet seen
// in its cache: the pods it created and those it deleted. A controller that acts
// again before it has seen them creates or deletes too much.
//
// Record before calling the API, lower as the events come in, and look before
// listing:
//
//	var exp expectations.UIDTrackingControllerExpectations[expectations.Key]
//
//	if state, remaining := exp.State(key); state == expectations.Waiting {
//		return requeueAfter(remaining) // nobody else wakes the owner when it expires
//	}
//	pods := list()                     // after State, never before
//	exp.ExpectCreations(key, 3)        // then create three pods; the informer's
//	                                   // handlers call exp.CreationObserved(key)
//
// Which events belong to which owner, lowering what failed, and forgetting an
// owner that is gone (DeleteExpectations) are left to the caller.
//
// [UIDTrackingControllerExpectations] is the one to choose: it counts a deletion
// once although it is seen twice, as an update and as a delete.
// [ControllerExpectations] only counts. Records are kept under any comparable
// key; [Key] is the one to choose, since an owner that was deleted and made again
// under its name then starts clean. ReplicaSets and ReplicationControllers may
// share a store that is kept by Key, but not one that is kept by namespace and
// name.
//
// [ConsistencyStore] answers the same question from resource versions instead of
// events; the two complement each other.
//
// Everything here is safe for concurrent use; an observation made while its owner
// records something new lowers the old record or the new one, never both. A
// record never holds more than math.MaxInt32 or less than -math.MaxInt32 of
// either kind; what goes beyond stays at the bound.
//
// Differs from Kubernetes (pkg/controller/controller_utils.go): the clock and the
// timeout may be chosen, expiry is a state that can be asked for, creations and
// deletions change as one, deletions go by UID instead of by name, creations may
// go by name instead of by number, and nothing is logged.
package expectations

import (
	"fmt"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// DefaultTimeout is how long an owner waits for what it expects before it may
// act all the same.
const DefaultTimeout = 5 * time.Minute

// A Key names one incarnation of an owner: an owner that was deleted and made
// again under its name has another UID, and so another record. Work queues stay
// keyed by the NamespacedName alone.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// KeyOf returns the key of an owner, and the zero Key for a nil one.
func KeyOf(owner metav1.Object) Key {
	if object.IsNil(owner) {
		return Key{}
	}
	return Key{types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()}, owner.GetUID()}
}

// String returns "namespace/name (uid)".
func (k Key) String() string { return fmt.Sprintf("%s (%s)", k.NamespacedName, k.UID) }

// MarshalLog returns what a structured logger prints: namespace, name and UID.
func (k Key) MarshalLog() any {
	return struct {
		Name      string    `json:"name"`
		Namespace string    `json:"namespace,omitempty"`
		UID       types.UID `json:"uid"`
	}{k.Name, k.Namespace, k.UID}
}

// A State tells whether an owner may act.
type State uint8

const (
	// Satisfied means that nothing is recorded for the owner, or all of it was seen.
	Satisfied State = iota
	// Waiting means that something is outstanding: the owner must not create or
	// delete.
	Waiting
	// Expired means that something is outstanding for longer than the timeout.
	// The owner may act: an event was lost, and waiting on would not bring it
	// back.
	Expired
)

// String returns "satisfied", "waiting" or "expired".
func (s State) String() string {
	switch s {
	case Satisfied:
		return "satisfied"
	case Waiting:
		return "waiting"
	case Expired:
		return "expired"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Pending is what one owner still waits for. It is a copy: changing it changes
// nothing else.
type Pending struct {
	// Adds and Dels are how many creations and deletions are outstanding. One of
	// them is above zero; the other may be negative, when more was seen than
	// expected.
	Adds, Dels int
	// Creating holds the names of the outstanding creations that are expected by
	// name, sorted. It is nil where they are only counted.
	Creating []string
	// Deleting holds the UIDs of the outstanding deletions, sorted. It is nil
	// where they are only counted.
	Deleting []types.UID
	// Since is when this was recorded.
	Since time.Time
}

// ControllerExpectations counts, for each owner, the creations and deletions
// that it started and has not seen yet. The zero value is ready to use and empty.
// It must not be copied after first use.
//
// A record stays until it is replaced or deleted, also when it is fulfilled or
// expired (E4).
type ControllerExpectations[K comparable] struct {
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

	records table[K, record]
}

// SetExpectations records that an owner expects so many creations and deletions
// from now on. It replaces whatever was recorded for it, time included (E5).
// Negative and zero counts are legal, and fulfilled at once (E16).
func (e *ControllerExpectations[K]) SetExpectations(key K, adds, dels int) {
	r := &record{since: instant(e.Now)}
	r.store(adds, dels)
	e.records.swap(&key, r)
}

// ExpectCreations is SetExpectations(key, adds, 0): outstanding deletions are
// forgotten (E6).
func (e *ControllerExpectations[K]) ExpectCreations(key K, adds int) { e.SetExpectations(key, adds, 0) }

// ExpectDeletions is SetExpectations(key, 0, dels): outstanding creations are
// forgotten (E6).
func (e *ControllerExpectations[K]) ExpectDeletions(key K, dels int) { e.SetExpectations(key, 0, dels) }

// CreationObserved is LowerExpectations(key, 1, 0).
func (e *ControllerExpectations[K]) CreationObserved(key K) { e.add(&key, -1, 0) }

// DeletionObserved is LowerExpectations(key, 0, 1).
func (e *ControllerExpectations[K]) DeletionObserved(key K) { e.add(&key, 0, -1) }

// RaiseExpectations adds to both counts at once. It does nothing for an owner
// without a record (E8), and the time of the record stays (E10).
func (e *ControllerExpectations[K]) RaiseExpectations(key K, adds, dels int) {
	e.add(&key, bounded(adds), bounded(dels))
}

// LowerExpectations subtracts from both counts at once; they may become negative
// (E9). It does nothing for an owner without a record (E8), and the time of the
// record stays (E10).
func (e *ControllerExpectations[K]) LowerExpectations(key K, adds, dels int) {
	e.add(&key, -bounded(adds), -bounded(dels))
}

func (e *ControllerExpectations[K]) add(key *K, adds, dels int32) {
	if r := e.records.get(key); r != nil {
		r.add(adds, dels)
	}
}

// GetExpectations returns both counts as they are at one instant, also where
// they have expired, and whether there is a record at all. They are copies.
func (e *ControllerExpectations[K]) GetExpectations(key K) (adds, dels int, ok bool) {
	r := e.records.get(&key)
	if r == nil {
		return 0, 0, false
	}
	adds, dels = r.load()
	return adds, dels, true
}

// SatisfiedExpectations reports whether an owner may act: its State is Satisfied
// or Expired. Look before listing the pods, not after: a pod that comes in
// between must not be missing from the list and yet be accounted for.
func (e *ControllerExpectations[K]) SatisfiedExpectations(key K) bool {
	s, _ := e.state(&key)
	return s != Waiting
}

// State tells where an owner stands, and how long it has to wait at most: while
// it is Waiting, the record will be Expired once remaining has passed, which is
// just after the timeout (E3). Otherwise remaining is 0. Nothing else wakes the
// owner then, so it has to be put back in the queue for that time.
func (e *ControllerExpectations[K]) State(key K) (s State, remaining time.Duration) {
	return e.state(&key)
}

func (e *ControllerExpectations[K]) state(key *K) (State, time.Duration) {
	return e.records.get(key).state(e.Timeout, e.Now)
}

// DeleteExpectations forgets an owner. It does nothing where there is no record.
func (e *ControllerExpectations[K]) DeleteExpectations(key K) { e.records.remove(&key) }

// All yields every owner for which something is outstanding, expired or not, in
// no particular order. It yields from a snapshot taken when the loop starts: the
// body may call anything, and sees nothing of what it changes. It costs O(n) in
// the number of owners.
func (e *ControllerExpectations[K]) All() iter.Seq2[K, Pending] {
	return all(&e.records, (*record).pending)
}

func (r *record) pending() Pending {
	adds, dels := r.load()
	return Pending{Adds: adds, Dels: dels, Since: r.since}
}

func all[K comparable, V any](records *table[K, V], pending func(*V) Pending) iter.Seq2[K, Pending] {
	return func(yield func(K, Pending) bool) {
		nodes := records.nodes()
		snapshot := make([]Pending, len(nodes))
		for i, n := range nodes {
			snapshot[i] = pending(n.value)
		}
		for i, p := range snapshot {
			if p.Adds <= 0 && p.Dels <= 0 {
				continue
			}
			if !yield(nodes[i].key, p) {
				return
			}
		}
	}
}
