// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// A Room limits how many children may be created, changed and deleted now. Within these limits,
// creations never cause too many children, and deletions never cause too few. Changes and the
// deletions of a rollout never leave too few available children. This holds whether or not the calls
// in flight succeed. RoomOf returns a Room, and docs/guarantee.md describes what a Room guarantees.
// The zero Room allows nothing. A Room is safe for concurrent use if the functions in Spec.Rules
// are safe for concurrent use.
type Room[T metav1.Object] struct {
	// Create and Delete are the maximum numbers of children that a Scale may create and delete.
	// These numbers apply only to a Scale that repeats calls in flight before it makes others. For
	// any other Scale, the limits may be lower. Call the method Clamp to enforce the right limits
	// for any Scale.
	Create, Delete int
	// Update is the maximum number of available children that a Scale may change in place if it deletes no available
	// child. Changes that are Free, and those of unavailable children, do not count. If neither MaxUnavailable nor
	// MaxSurge is set, Update is the number of active children. If Spec.Update is nil, it is 0, and no change is allowed.
	Update int

	places   int                 // the number of free places before the creations in flight are subtracted; see the method room
	creating sets.Set[string]    // the names of creations in flight; each of these creations uses one of the free places
	surplus  int                 // the number of children that are not being deleted, minus Replicas
	deleting sets.Set[types.UID] // the UIDs of the children whose deletion is in flight
	rules    Rules[T]
	held     sets.Set[string] // the wanted slots that are not free; nil if Slots is not set
	replaces bool             // whether all children that must go may be deleted now
	must     int              // the number of children that must go
	kept     int              // the number of children that must go but are kept, because another child is missing
	stuck    int              // the number of surplus children that must stay
	roll     *rolling[T]      // nil if no rollout limits the creations and deletions

	updates   bool                // whether Spec.Update is set
	updating  sets.Set[types.UID] // the UIDs of the children whose change is in flight
	available func(T) bool        // whether a child is available and has no change in flight; nil if that limits nothing
	// missing is how many staying children are missing that could be recalled or created. The recalls in flight, whose
	// UIDs are in recalling, are not subtracted.
	missing   int
	recalling sets.Set[types.UID]
	returning int // the number of those in recalling that may become active, and so hold a place

	lots    *lots[T]       // nil without Spec.SlotOf
	groups  []groupRoom[T] // the Room of each group, and the fields above but for the numbers are not set; nil without groups
	groupOf func(T) string
}

// RoomOf returns the Room of an owner. The parameter owned lists the owner's children. Inactive
// children do not count as replicas. The parameter spec is the same as for ScaleTo. If the owner is
// being deleted and Spec.Draining returns false, the Room is zero. RoomOf returns an error if spec
// cannot be used, or if a child is nil.
func RoomOf[T metav1.Object](owned []T, spec Spec[T]) (Room[T], error) {
	if err := spec.begin(); err != nil {
		return Room[T]{}, err
	}
	if spec.blocked().Reason == OwnerDeleted {
		return Room[T]{}, nil
	}
	active, err := spec.active(owned)
	if err != nil {
		return Room[T]{}, err
	}
	parts, err := spec.parts(owned)
	if err != nil {
		return Room[T]{}, err
	}
	var rooms []groupRoom[T]
	for _, p := range spec.deal(parts, active, nil, spec.marked(owned, func(T) bool { return true })) {
		changes, _, err := p.drift(p.owned)
		if err != nil {
			return Room[T]{}, err
		}
		counted, _, err := p.fitSlots(p.owned, p.marked, &p.wanted)
		if err != nil {
			return Room[T]{}, err
		}
		rooms = append(rooms, groupRoom[T]{p.room(counted, p.marked, p.wanted, changes), p.group})
	}
	if spec.GroupOf == nil {
		return rooms[0].Room, nil
	}
	return spec.joinRooms(rooms), nil
}

// room computes the Room of an owner with these active children. These rules apply:
//
//   - A child is created only if a place for the child is free. Without slots, the number of places
//     is Replicas. Each active child uses one place, even while the child is being deleted. Each
//     pending adoption and each creation in flight also uses one place. If a Scale repeats a
//     creation in flight, the repeated creation needs no second place. So creations in flight may
//     be repeated even if there are more of them than places, but only as many as there are places
//     before the creations in flight are subtracted. No other children are created in this case.
//   - With slots, each wanted slot is a place. The place is free if no object in the list and no
//     entry of Facts.Taken has the name of the slot. Pending adoptions and creations in flight use
//     no place.
//   - Surplus children may be deleted. Each deletion in flight that is not sent again makes the
//     surplus smaller by one. With slots, only children outside the wanted slots are surplus.
//   - If at least Replicas children exist, all children that must go may be deleted at the same
//     time. A child does not count as existing if its deletion is in flight and the child need not
//     go. With slots, children outside the wanted slots must go, and only children in wanted slots
//     count as existing.
//   - With MaxUnavailable or MaxSurge, the method roll sets the limits, if a child must go or needs a
//     change that is not Free. Otherwise surplus children are deleted as without these limits.
//   - An available child may be changed if enough others stay available. A child with a change or a
//     deletion in flight, or one that is being deleted, is not available.
//   - Children that must stay are not deleted. Without slots, children that must be discarded and
//     children of other owners use no place. If the deletion of a child that must be discarded is
//     in flight, this deletion is ignored. A deletion in flight is also ignored if the child
//     belongs to another owner.
func (s *Spec[T]) room(active, marked []T, wanted slots[T], changes []Change[T]) Room[T] { //nolint:funlen // one rule after the other
	staying := s.staying(active)
	r := Room[T]{places: max(int(s.Replicas)-len(active), 0), surplus: len(staying) - int(s.Replicas), rules: s.Rules, held: wanted.held}
	r.places -= min(r.places, len(s.Facts.Undecided)) // there may be more orphans than places
	if r.lots = wanted.lots; r.lots != nil {
		r.places = r.lots.places
	} else if s.Slots != nil {
		r.places = wanted.missing
	} else if len(s.Facts.CreationsInFlight) > 0 {
		r.creating = sets.New(s.Facts.CreationsInFlight...)
	}
	may, again, lost, standIns := len(staying), 0, 0, 0
	if s.Rules.MustGo != nil || s.Rules.MustStay != nil || len(s.Facts.DeletionsInFlight) > 0 { // if none is set, any child may be deleted
		inFlight := sets.New(s.Facts.DeletionsInFlight...)
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
	r.stuck, r.Create = max(r.surplus-may, 0), r.places
	if r.surplus >= len(r.deleting) {
		r.Delete = min(r.surplus-len(r.deleting)+again, may)
	}
	if r.replaces = r.surplus-lost >= standIns; r.replaces {
		r.Delete = max(r.Delete, r.must)
	} else if r.surplus < standIns {
		r.kept = max(r.must-r.Delete, 0)
	}
	r.missing = int(s.Replicas) - len(staying) - len(s.Facts.Undecided) - len(r.creating)
	if s.Slots != nil {
		r.missing = len(marked)
	}
	if s.Update != nil {
		r.updates, r.Update = true, len(active)
	}
	if len(s.Facts.UpdatesInFlight) > 0 {
		r.updating = sets.New(s.Facts.UpdatesInFlight...)
	}
	for _, c := range marked {
		if id := object.ID(c); r.updating.Has(id) {
			if r.recalling == nil {
				r.recalling = sets.New[types.UID]()
			}
			r.recalling.Insert(id)
			r.returning += one(!r.isActive(c) && s.Slots == nil)
		}
	}
	r.places -= min(r.places, r.returning)
	r.Create = r.places
	if !s.rolls() || r.must == 0 && len(r.updating) == 0 && !r.updates {
		return r
	}
	r.available = s.availableBeside(r.updating)
	if r.updates {
		s.limitChanges(&r, staying)
	}
	if r.must > 0 || len(r.updating) > 0 || r.takesAway(changes) {
		return s.roll(r, active, staying)
	}
	return r
}

// mayGo reports whether a child may be deleted as surplus.
func (r *Room[T]) mayGo(c T) bool { return r.isOut(c) && !r.mustStay(c) }

// mustGo reports whether a child must go and is not kept by MustStay.
func (r *Room[T]) mustGo(c T) bool {
	return r.rules.MustGo != nil && r.rules.MustGo(c) && !r.mustStay(c)
}

func (r *Room[T]) mustStay(c T) bool { return r.rules.mustStay(c) }

// isOut reports whether a child is outside the wanted slots. Without slots, isOut returns true for
// every child.
func (r *Room[T]) isOut(c T) bool {
	if r.lots != nil {
		return r.lots.isOut(c)
	}
	return !r.held.Has(c.GetName())
}

// Clamp removes from a Scale the creations, changes and deletions that the Room does not allow. If the
// Room allows a call in flight to be repeated, Clamp keeps the repeated call without counting it.
// Calls that are not in flight are kept in the order of the Scale, until a limit of the Room is
// reached. Deletions come before changes. If more creations are in flight than places are free, Clamp
// keeps as many repeated creations as places are free, and no others. Scale.Discard does not change.
// Changes and deletions of a nil object are removed, and so are changes to nil.
func (r *Room[T]) Clamp(scale Scale[T]) Scale[T] {
	if r.groups != nil {
		return r.clampGroups(scale)
	}
	recalls, taken := r.clampRecalls(filter(scale.Update, func(c Change[T]) bool { return c.Recall && !object.IsNil(c.Object) && !object.IsNil(c.To) }))
	again, free := r.places-taken, max(r.places-taken-len(r.creating), 0)
	switch {
	case r.lots != nil:
		scale.Names = r.lots.clampNames(scale.Names, recalls, again, max(again-len(r.lots.sent), 0))
		scale.Create = len(scale.Names)
	case scale.Names == nil:
		scale.Create = min(scale.Create, free)
	default:
		// Ten creations were sent twice, and eight of their pods were deleted. Each of the eight names may still make
		// a pod for five minutes, but to send it again makes no second one. So 2 become 8 at once.
		scale.Names = filter(scale.Names, func(name string) bool { return r.creating.Has(name) && take(&again) || take(&free) })
		scale.Create = len(scale.Names)
	}
	scale.Delete = r.clampDeletions(scale.Delete)
	scale.Update = join(recalls, r.clampChanges(scale.Update, scale.Delete))
	return scale
}

// clampDeletions returns the deletions that the room allows.
func (r *Room[T]) clampDeletions(victims []Deletion[T]) []Deletion[T] {
	if r.roll != nil {
		return r.roll.clamp(r, victims)
	}
	var surplus, replaced []Deletion[T]
	isNil := object.NilOf[T]()
	if left := r.surplus - len(r.deleting); left >= 0 {
		surplus = filter(victims, func(v Deletion[T]) bool {
			return !isNil(v.Object) && r.mayGo(v.Object) && (r.deleting.Has(object.ID(v.Object)) || take(&left))
		})
	}
	if r.replaces {
		replaced = filter(victims, func(v Deletion[T]) bool { return !isNil(v.Object) && r.mustGo(v.Object) })
	}
	if len(replaced) >= len(surplus) {
		return replaced
	}
	return surplus
}

// take subtracts one from the number that its argument points to. It reports whether the number was
// positive before.
func take(left *int) bool {
	*left--
	return *left >= 0
}

// filter returns the elements for which the given function returns true. If there are none, the
// result is nil.
func filter[E any](list []E, keep func(E) bool) (kept []E) {
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
