// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// A Room limits how many children may be created, changed and deleted now. Within these limits creations never cause
// too many children and deletions never cause too few, and neither changes nor the deletions of a rollout leave too few
// available. This holds whether or not the calls in flight succeed. RoomOf returns a Room, and docs/guarantee.md
// describes what it guarantees. The zero Room allows nothing. A Room is safe for concurrent use if the functions of its
// Spec are.
type Room[T metav1.Object] struct {
	// Create and Delete are the maximum numbers of children that a Scale may create and delete, if it repeats calls in
	// flight before it makes others. For any other Scale the limits may be lower, and the method Clamp enforces the
	// right ones.
	Create, Delete int
	// Update is the maximum number of available children that a Scale may change in place if it deletes no available
	// child. Changes that are Free, and those of unavailable children, do not count. Without MaxUnavailable and
	// MaxSurge, Update is the number of active children. Without Spec.Update it is 0, and no change is allowed.
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

	occupancy *occupancy[T]  // nil without Spec.SlotOf
	groups    []groupRoom[T] // the Room of each group, and the fields above except the numbers are not set; nil without groups
	groupOf   func(T) string
}

// RoomOf returns the Room of an owner. The parameter owned lists the owner's children, but inactive ones do not count
// as replicas, and spec is the same as for ScaleTo. The Room is zero if the owner is being deleted and Spec.Draining
// returns false. RoomOf returns an error if spec cannot be used, or if a child is nil.
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
	for _, p := range spec.assign(parts, active, nil, spec.marked(owned, func(T) bool { return true })) {
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

// room computes the Room of an owner with these active children.
func (s *Spec[T]) room(active, marked []T, wanted slots[T], changes []Change[T]) Room[T] { //nolint:funlen // one rule after the other
	staying := s.staying(active)
	//	created <= wanted - active - undecided - creations in flight that are not sent again
	// A child that is being deleted and counts as active keeps its place until it is gone.
	r := Room[T]{places: max(int(s.Replicas)-len(active), 0), surplus: len(staying) - int(s.Replicas), rules: s.Rules, held: wanted.held}
	// The adoption of an orphan had no answer and may still succeed. Then the orphan is one of those wanted.
	r.places -= min(r.places, len(s.Facts.Undecided)) // there may be more orphans than places
	if r.occupancy = wanted.occupancy; r.occupancy != nil {
		r.places = r.occupancy.places
	} else if s.Slots != nil {
		r.places = wanted.missing // creations in flight hold no place, because no second object can get the name of a slot
	} else if len(s.Facts.CreationsInFlight) > 0 {
		r.creating = sets.New(s.Facts.CreationsInFlight...)
	}
	may, again, lost, standIns := len(staying), 0, 0, 0
	if s.Rules.MustGo != nil || s.Rules.MustStay != nil || len(s.Facts.DeletionsInFlight) > 0 { // if none is set, any child may be deleted
		inFlight := sets.New(s.Facts.DeletionsInFlight...)
		r.deleting, may = sets.New[types.UID](), 0
		// A deletion in flight of a discarded child, or of another owner's, takes nothing away, so only those of
		// children that stay are looked for.
		for _, c := range staying {
			mayGo, mustGo := r.mayGo(c), r.mustGo(c)
			may, r.must = may+one(mayGo), r.must+one(mustGo)
			// web-1 is missing, so web-7 stands in for it, although it is in no wanted slot.
			standsIn := s.Slots != nil && r.isOut(c)
			standIns += one(standsIn)
			if id := object.ID(c); inFlight.Has(id) {
				r.deleting.Insert(id)
				again, lost = again+one(mayGo), lost+one(!mustGo && !standsIn)
			}
		}
	}
	r.stuck, r.Create = max(r.surplus-may, 0), r.places
	//	deleted <= staying - wanted - deletions in flight that are not sent again
	// If all of them take effect and too few are left, because more are wanted now, none is sent again.
	if r.surplus >= len(r.deleting) {
		r.Delete = min(r.surplus-len(r.deleting)+again, may)
	}
	// All that must go may go at once if
	//
	//	wanted <= staying - deletions in flight of those that need not go
	//
	// and with slots, if that many stay in wanted slots. Otherwise they wait: one child is missing, and a full quota
	// lets none be created, so if another one went, both would be missing.
	if r.replaces = r.surplus-lost >= standIns; r.replaces {
		r.Delete = max(r.Delete, r.must)
	} else if r.surplus < standIns {
		r.kept = max(r.must-r.Delete, 0)
	}
	//	recalled <= wanted - staying - undecided - creations in flight, which may fill the place
	r.missing = int(s.Replicas) - len(staying) - len(s.Facts.Undecided) - len(r.creating)
	if s.Slots != nil {
		r.missing = len(marked) // each in its own slot
	}
	if s.Update != nil {
		r.updates, r.Update = true, len(active)
	}
	if len(s.Facts.UpdatesInFlight) > 0 {
		r.updating = sets.New(s.Facts.UpdatesInFlight...)
	}
	for _, c := range marked {
		if id := object.ID(c); r.updating.Has(id) {
			// Its mark may have been taken back by a call without an answer, so it holds a place.
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
	// While a change is needed, MaxUnavailable protects surplus children, too. Three of four are wanted, one may be
	// unavailable, and two are available: if one of these went as surplus, one would be left.
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

// isOut reports whether a child is outside the wanted slots, as every child is without slots.
func (r *Room[T]) isOut(c T) bool {
	if r.occupancy != nil {
		return r.occupancy.isOut(c)
	}
	return !r.held.Has(c.GetName())
}

// Clamp removes from a Scale the creations, changes and deletions that the Room does not allow. A call in flight that
// the Room allows to be repeated is kept without being counted. Other calls are kept in the order of the Scale until a
// limit of the Room is reached, and deletions come before changes. But if more creations are in flight than places are
// free, Clamp keeps as many repeated creations as places are free, and no others. Changes and deletions of a nil object
// are removed, and so are changes to nil. Scale.Discard does not change.
func (r *Room[T]) Clamp(scale Scale[T]) Scale[T] {
	if r.groups != nil {
		return r.clampGroups(scale)
	}
	recalls, taken := r.clampRecalls(filter(scale.Update, func(c Change[T]) bool { return c.Recall && !object.IsNil(c.Object) && !object.IsNil(c.To) }))
	//	created    <= wanted - active - undecided - other creations in flight
	//	sent again <= wanted - active - undecided
	again, free := r.places-taken, max(r.places-taken-len(r.creating), 0)
	switch {
	case r.occupancy != nil:
		scale.Names = r.occupancy.clampNames(scale.Names, recalls, again, max(again-len(r.occupancy.sent), 0))
		scale.Create = len(scale.Names)
	case scale.Names == nil:
		scale.Create = min(scale.Create, free) // the server chooses new names, so none is sent again
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
	//	deleted <= staying - wanted - other deletions in flight
	if left := r.surplus - len(r.deleting); left >= 0 {
		// The rules are asked again, because a live list after a Conflict may show that a victim must stay.
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

// take subtracts one from a number, and reports whether the number was positive before.
func take(left *int) bool {
	*left--
	return *left >= 0
}

// filter returns the elements that keep accepts, or nil if there are none.
func filter[E any](list []E, keep func(E) bool) (kept []E) {
	for _, e := range list {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

func one(ok bool) int {
	if ok {
		return 1
	}
	return 0
}
