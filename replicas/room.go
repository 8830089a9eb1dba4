// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// A Room is how many children may be created and deleted, so that there are neither more nor
// fewer than wanted, whatever becomes of the calls in flight. RoomOf returns it, and
// docs/guarantee.md says what it promises. In the zero Room there is none.
type Room[T metav1.Object] struct {
	// Create and Delete are how many children may be created and deleted at most. That many
	// may be only if the names and the victims in flight are among them: Clamp counts those
	// of one Scale.
	Create, Delete int

	places   int                 // that no child has
	creating sets.Set[string]    // names in flight; each holds a place
	surplus  int                 // children that stay, less those that are wanted
	deleting sets.Set[types.UID] // of the children that stay: each may be gone
	mayGo    func(T) bool        // it may go as one of the surplus
	mustGo   func(T) bool        // it may go if it is replaced
	replaces bool                // those that must go may all go now
	must     int                 // how many these are
	kept     int                 // how many of them stay because another child is missing
	stuck    int                 // how many of the surplus must stay
}

// RoomOf returns the room of an owner that has the children. Inactive ones take no place. spec
// is as for ScaleTo, and so are the errors.
func RoomOf[T metav1.Object](owned []T, spec Spec[T]) (Room[T], error) {
	if err := spec.checkScale(); err != nil {
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
//   - Each of them has a place, and so has one that is being deleted and still active.
//     PendingAdoptions holds places, and so does each creation in flight that is not sent
//     again. With slots, each slot is a place of its own, and nothing else holds it.
//   - The surplus may go, less the deletions in flight that are not sent again. With slots, those
//     go that are in no wanted slot.
//   - All that must go may go, if without them and the others whose deletion is in flight
//     no place of another child becomes free. With slots, those in no wanted slot must go, and
//     each wanted slot must have a child.
//   - What must stay does not go. What is to be discarded, and what is not the owner's, takes no
//     place and does not count when it is deleted.
func (s *Spec[T]) room(active []T, wanted slots) Room[T] {
	staying := s.staying(active)
	is, inFlight, isOut := s.Rules, sets.New(s.DeletionsInFlight...), func(T) bool { return true }
	r := Room[T]{
		places: max(int(s.Replicas)-len(active), 0), creating: sets.New(s.CreationsInFlight...),
		surplus: len(staying) - int(s.Replicas), deleting: sets.New[types.UID](),
	}
	r.places -= min(r.places, s.PendingAdoptions) // which may be many
	if s.Slots != nil {
		r.places, r.creating, isOut = wanted.missing, nil, func(c T) bool { return !wanted.held.Has(c.GetName()) }
	}
	r.mayGo = func(c T) bool { return isOut(c) && (is.MustStay == nil || !is.MustStay(c)) }
	r.mustGo = func(c T) bool { return is.MustGo != nil && is.MustGo(c) && (is.MustStay == nil || !is.MustStay(c)) }
	may, again, lost, standIns := len(staying), 0, 0, 0
	if is.MustGo != nil || is.MustStay != nil || len(inFlight) > 0 { // else all are alike
		may = 0
		for _, c := range staying {
			mayGo, mustGo := r.mayGo(c), r.mustGo(c)
			may, r.must = may+one(mayGo), r.must+one(mustGo)
			standsIn := s.Slots != nil && isOut(c)
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
	return r
}

// Clamp leaves out of a Scale what there is no room for. It keeps the names and the victims in
// flight, and of the others the first. Discard stays as it is. Victims that are nil are left out.
func (r Room[T]) Clamp(scale Scale[T]) Scale[T] {
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
	var surplus, replaced []Deletion[T]
	isNil := object.NilOf[T]()
	if left := r.surplus - len(r.deleting); left >= 0 && r.mayGo != nil {
		surplus = some(scale.Delete, func(v Deletion[T]) bool {
			return !isNil(v.Object) && r.mayGo(v.Object) && (r.deleting.Has(object.ID(v.Object)) || take(&left))
		})
	}
	if r.replaces && r.mustGo != nil {
		replaced = some(scale.Delete, func(v Deletion[T]) bool { return !isNil(v.Object) && r.mustGo(v.Object) })
	}
	if scale.Delete = surplus; len(replaced) >= len(surplus) {
		scale.Delete = replaced
	}
	return scale
}

// take takes one of those that are left, and reports whether there was one.
func take(left *int) bool {
	*left--
	return *left >= 0
}

// some returns those of the list that are to be kept; nil if none is.
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
