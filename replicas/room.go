// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// A Room says how many children may be created and deleted, so that there are neither more nor
// fewer than wanted, regardless of how the calls in flight end. RoomOf returns a Room, and
// docs/guarantee.md says what it promises. The zero Room allows nothing. Goroutines may share a
// Room if they may share the functions of Spec.Rules.
type Room[T metav1.Object] struct {
	// Create and Delete are how many children may be created and deleted at most, if all names and
	// victims in flight are among them. Otherwise the limit is lower, and Clamp applies it to one
	// Scale.
	Create, Delete int

	places   int                 // places that no child has
	creating sets.Set[string]    // names in flight; each counts as one more child
	surplus  int                 // children that are not being deleted, less those wanted
	deleting sets.Set[types.UID] // those of them with a deletion in flight
	rules    Rules[T]
	held     sets.Set[string] // the wanted slots that are not free; nil without slots
	replaces bool             // all children that must go may be deleted now
	must     int              // how many must go
	kept     int              // how many of them stay because another child is missing
	stuck    int              // how many of the surplus must stay
	roll     *rolling[T]      // nil without MaxUnavailable and MaxSurge
}

// RoomOf returns the Room of an owner that has the children. Inactive children take no place. spec
// and the errors are as for ScaleTo.
func RoomOf[T metav1.Object](owned []T, spec Spec[T]) (Room[T], error) {
	if err := spec.begin(); err != nil {
		return Room[T]{}, err
	}
	active, err := spec.active(owned)
	if err != nil {
		return Room[T]{}, err
	}
	wanted, err := spec.wanted(owned)
	if err != nil {
		return Room[T]{}, err
	}
	if err := spec.fitSlots(active, wanted); err != nil {
		return Room[T]{}, err
	}
	return spec.room(active, wanted), nil
}

// room returns the room of active children. Its terms are:
//
//   - Each active child takes a place, even while it is being deleted. PendingAdoptions takes
//     places, and so does each creation in flight that is not sent again. With slots, each slot is
//     a place of its own, and these two take none.
//   - The surplus may be deleted. Each deletion in flight that is not sent again makes it one
//     smaller. With slots, only children in no wanted slot are surplus.
//   - If as many children exist as are wanted, all children that must go may be deleted at once. A
//     child with a deletion in flight counts here only if it must go. With slots, children in no
//     wanted slot must go, and only those in wanted slots count.
//   - With MaxUnavailable or MaxSurge, see roll.
//   - Children that must stay are not deleted. Children to discard, and those of other owners, take
//     no place, and their deletions do not count.
func (s *Spec[T]) room(active []T, wanted slots) Room[T] {
	staying := s.staying(active)
	r := Room[T]{places: max(int(s.Replicas)-len(active), 0), surplus: len(staying) - int(s.Replicas), rules: s.Rules, held: wanted.held}
	r.places -= min(r.places, s.PendingAdoptions) // there may be more of them
	if s.Slots != nil {
		r.places = wanted.missing
	} else if len(s.CreationsInFlight) > 0 {
		r.creating = sets.New(s.CreationsInFlight...)
	}
	may, again, lost, standIns := len(staying), 0, 0, 0
	if s.Rules.MustGo != nil || s.Rules.MustStay != nil || len(s.DeletionsInFlight) > 0 { // otherwise all children are alike
		inFlight := sets.New(s.DeletionsInFlight...)
		r.deleting, may = sets.New[types.UID](), 0
		for _, c := range staying {
			mayGo, mustGo := r.mayGo(c), r.mustGo(c)
			may, r.must = may+one(mayGo), r.must+one(mustGo)
			standsIn := s.Slots != nil && r.isOut(c)
			standIns += one(standsIn)
			if id := object.ID(c); inFlight.Has(id) {
				r.deleting.Insert(id)
				again, lost = again+one(mayGo), lost+one(!mustGo && !standsIn)
			}
		}
	}
	r.stuck = max(r.surplus-may, 0)
	if r.places >= len(r.creating) {
		r.Create = r.places
	}
	if r.surplus >= len(r.deleting) {
		r.Delete = min(r.surplus-len(r.deleting)+again, may)
	}
	if r.replaces = r.surplus-lost >= standIns; r.replaces {
		r.Delete = max(r.Delete, r.must)
	} else if r.surplus < standIns {
		r.kept = max(r.must-r.Delete, 0)
	}
	if s.rolls() && r.must > 0 {
		return s.roll(r, active, staying)
	}
	return r
}

// mayGo reports whether a child may be deleted as one of the surplus.
func (r *Room[T]) mayGo(c T) bool { return r.isOut(c) && !r.mustStay(c) }

// mustGo reports whether a child must go, and MustStay does not keep it.
func (r *Room[T]) mustGo(c T) bool {
	return r.rules.MustGo != nil && r.rules.MustGo(c) && !r.mustStay(c)
}

func (r *Room[T]) mustStay(c T) bool { return r.rules.MustStay != nil && r.rules.MustStay(c) }

// isOut reports whether a child is in no wanted slot. Without slots, every child is.
func (r *Room[T]) isOut(c T) bool { return !r.held.Has(c.GetName()) }

// Clamp removes from a Scale what there is no room for. It keeps the names and victims in flight,
// and the first of the others. Discard does not change. Victims that are nil are removed.
func (r *Room[T]) Clamp(scale Scale[T]) Scale[T] {
	free := r.places - len(r.creating)
	switch {
	case free < 0:
		scale.Create, scale.Names = 0, nil
	case scale.Names == nil:
		scale.Create = min(scale.Create, free)
	default:
		scale.Names = some(scale.Names, func(name string) bool { return r.creating.Has(name) || take(&free) })
		scale.Create = len(scale.Names)
	}
	if r.roll != nil {
		scale.Delete = r.roll.clamp(r, scale.Delete)
		return scale
	}
	var surplus, replaced []Deletion[T]
	isNil := object.NilOf[T]()
	if left := r.surplus - len(r.deleting); left >= 0 {
		surplus = some(scale.Delete, func(v Deletion[T]) bool {
			return !isNil(v.Object) && r.mayGo(v.Object) && (r.deleting.Has(object.ID(v.Object)) || take(&left))
		})
	}
	if r.replaces {
		replaced = some(scale.Delete, func(v Deletion[T]) bool { return !isNil(v.Object) && r.mustGo(v.Object) })
	}
	if scale.Delete = surplus; len(replaced) >= len(surplus) {
		scale.Delete = replaced
	}
	return scale
}

// take subtracts one from left, and reports whether one was left.
func take(left *int) bool {
	*left--
	return *left >= 0
}

// some returns the elements for which keep is true, or nil if there are none.
func some[E any](list []E, keep func(E) bool) (kept []E) {
	for _, e := range list {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}
