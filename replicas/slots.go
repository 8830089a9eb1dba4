// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
)

// Ordinals returns a function for Spec.Slots that names the slots base-0, base-1 and so on. The
// parameter base is usually the owner's name.
func Ordinals(base string) func(i int) string {
	return func(i int) string { return base + "-" + strconv.Itoa(i) }
}

// MaxSlots is the maximum number of slots. If Slots is set and Replicas is above MaxSlots, the spec
// is refused. With Spec.Groups, this is the maximum of each group.
const MaxSlots = 1_000_000

// slots describes the wanted slots. It holds only the names that a plan needs. The zero value
// describes a spec without slots.
type slots[T metav1.Object] struct {
	held    sets.Set[string] // wanted slots whose names belong to an object or are in Facts.Taken
	free    []string         // names of the first free wanted slots, at most as many as a plan can fill
	missing int              // the number of free wanted slots
	order   []string         // those that are held or free, in their order
	lots    *lots[T]         // what fitSlots finds out, with SlotOf
}

// SlotIn returns the slot of a name that a plan with Spec.SlotOf has chosen: the part before the last "-".
func SlotIn(name string) string { return baseOf(name) }

// slotOf returns the slot of a child.
func (s *Spec[T]) slotOf(child T) string {
	if s.SlotOf == nil {
		return child.GetName()
	}
	return s.SlotOf(child)
}

// wanted returns the wanted slots. It calls Slots at most Replicas times. It stops as soon as it
// has found a slot for each name in objs and Taken, and as many free slots as a plan can fill. It
// returns an error if a free slot has an illegal name, or if two slots have the same name.
func (s *Spec[T]) wanted(objs []T) (is slots[T], err error) {
	if s.Slots == nil {
		return is, nil
	}
	if s.Replicas > MaxSlots {
		return is, s.refuse(InvalidSlots, "replicas %d is more than the %d slots that are possible", s.Replicas, MaxSlots)
	}
	taken, owner := sets.New[string](), object.OwnerOf(s.Owner, s.Kind.GroupKind())
	for _, obj := range join(objs, s.Facts.Undecided) {
		if owner.Reaches(obj) {
			taken.Insert(s.slotOf(obj))
		}
	}
	if s.SlotOf == nil {
		taken.Insert(s.Facts.Taken...)
	}
	for _, name := range s.Facts.CreationsInFlight {
		if s.SlotOf != nil {
			taken.Insert(SlotIn(name))
		}
	}
	check, chosen := s.checkNames(), sets.New[string]()
	is.held = sets.New[string]()
	for i := 0; i < int(s.Replicas) && (len(is.free) < s.burst() || len(is.held) < len(taken)); i++ {
		name := s.Slots(i)
		if s.SlotOf != nil && len(name) > maxBase {
			return slots[T]{}, s.refuse(InvalidSlots, "slot %d is %q, which is longer than %d characters", i, name, maxBase)
		}
		is.order = append(is.order, name)
		switch {
		case is.held.Has(name) || chosen.Has(name):
			return slots[T]{}, s.refuse(InvalidSlots, "slot %d: %q is the name of another slot too", i, name)
		case taken.Has(name):
			is.held.Insert(name)
		case len(is.free) < s.burst():
			if err := check(name); err != nil {
				return slots[T]{}, s.refuse(InvalidSlots, "slot %d is %q: %w", i, name, err)
			}
			chosen.Insert(name)
			is.free = append(is.free, name)
		}
	}
	is.missing = int(s.Replicas) - len(is.held)
	return is, nil
}

// mayAdopt returns a filter that reports whether an orphan may be adopted. It is nil if all may.
func (s *Spec[T]) mayAdopt(objs []T, parts []part[T]) func(T) bool {
	if s.GroupOf == nil {
		return parts[0].mayFill(objs, parts[0].wanted)
	}
	owner, filters := object.OwnerOf(s.Owner, s.Kind.GroupKind()), map[string]func(T) bool{}
	for _, p := range parts {
		filters[p.group] = p.mayFill(objs, p.wanted)
	}
	return func(obj T) bool {
		if owner.Controls(obj) {
			return true
		}
		may, listed := filters[s.GroupOf(obj)] // a group that is not listed wants none
		return listed && (may == nil || may(obj))
	}
}

// mayFill returns the filter of mayAdopt for one part. For each wanted slot without an active child of the owner, the
// filter allows one orphan, unless another one for the slot is undecided.
func (s *Spec[T]) mayFill(objs []T, wanted slots[T]) func(T) bool {
	if s.Slots == nil && !s.NoAdoption { // the usual case, which needs no function
		return nil
	}
	owner := object.OwnerOf(s.Owner, s.Kind.GroupKind())
	if s.NoAdoption {
		return func(obj T) bool { return owner.Controls(obj) }
	}
	free, counts := wanted.held.Clone(), s.counts()
	for _, obj := range objs {
		if owner.Controls(obj) && counts(obj) {
			free.Delete(s.slotOf(obj))
		}
	}
	for _, obj := range s.Facts.Undecided { // the server may have adopted it
		free.Delete(s.slotOf(obj))
	}
	return func(obj T) bool {
		if owner.Controls(obj) {
			return true
		}
		slot := s.slotOf(obj)
		isFree := free.Has(slot)
		free.Delete(slot)
		return isFree
	}
}

// fitSlots changes the rules so that owned children outside the wanted slots must go. Among these
// children, the child in the highest slot is deleted first. If several children share a wanted
// slot, all of them must stay, and only the oldest counts. fitSlots returns the children that
// count, and the others sorted by name and namespace.
func (s *Spec[T]) fitSlots(owned, marked []T, wanted *slots[T]) (counted, doubled []T, err error) {
	if s.Slots == nil {
		return owned, nil, nil
	}
	isOut := func(child T) bool { return !wanted.held.Has(child.GetName()) }
	if s.SlotOf != nil {
		wanted.lots = s.lotsOf(owned, marked, wanted)
		counted, isOut = owned, wanted.lots.isOut
	} else {
		counted, doubled = onePerSlot(owned, *wanted)
	}
	s.Facts.Undecided = nil // an undecided orphan can take only its slot
	order, err := s.orderAfter(highestSlot(isOut, s.slotOf))
	if err != nil {
		return nil, nil, err
	}
	mustGo, mustStay := s.Rules.MustGo, s.Rules.MustStay
	s.Rules.MustGo = func(child T) bool { return isOut(child) || mustGo != nil && mustGo(child) }
	s.Rules.Order = order
	if len(doubled) > 0 {
		refused := sets.New[string]()
		for _, child := range doubled {
			refused.Insert(child.GetName())
		}
		s.Rules.MustStay = func(child T) bool {
			return refused.Has(child.GetName()) || mustStay != nil && mustStay(child)
		}
	}
	return counted, doubled, nil
}

// onePerSlot leaves the oldest child in each wanted slot, and all children outside the wanted slots.
//
// A user who may create objects in some namespace can give the owner's name and UID to a second web-0.
// The owner has no namespace, so both are its children, and no rule says which of them is wanted.
func onePerSlot[T metav1.Object](owned []T, wanted slots[T]) (counted, doubled []T) {
	compare := func(a, b T) int {
		return cmp.Or(
			cmp.Compare(a.GetName(), b.GetName()),
			a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
			cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetUID(), b.GetUID()),
		)
	}
	first := make(map[string]T, len(owned))
	for _, child := range owned {
		if other, twice := first[child.GetName()]; !twice || compare(child, other) < 0 {
			first[child.GetName()] = child
		}
	}
	if len(first) == len(owned) {
		return owned, nil
	}
	for _, child := range owned {
		if wanted.held.Has(child.GetName()) && compare(child, first[child.GetName()]) != 0 {
			doubled = append(doubled, child)
		} else {
			counted = append(counted, child)
		}
	}
	slices.SortFunc(doubled, compare)
	return counted, doubled
}

// orderAfter returns an order that consists of the given criteria, followed by the criteria of the
// rules.
func (s *Spec[T]) orderAfter(first ...podrank.Criterion[T]) (podrank.Order[T], error) {
	order := s.Rules.Complete().Order
	if pods, ok := any(podrank.Kubernetes()).(podrank.Order[T]); ok && len(order.Criteria()) == 0 {
		order = pods
	}
	order, err := podrank.NewOrder(slices.Concat(first, order.Criteria())...)
	if err != nil {
		return order, s.failure("%w", err)
	}
	return order, nil
}

// A slot is a string for comparing names. It consists of the length of the name in hexadecimal
// digits, followed by the name itself. Slots are compared as strings, so web-10 is higher than
// web-9.
type slot string

// String returns the name.
func (s slot) String() string { return string(s[min(slotLength, len(s)):]) }

// slotLength is the number of hexadecimal digits at the start of a slot.
const slotLength = 8

// highestSlot returns a criterion that ranks children by their slots. The child in the highest slot
// comes first. The criterion ranks only children for which isOut returns true.
func highestSlot[T metav1.Object](isOut func(T) bool, slotOf func(T) string) podrank.Criterion[T] {
	return podrank.By("highest slot", func(child T) slot {
		if !isOut(child) {
			return ""
		}
		name := slotOf(child)
		return slot(fmt.Sprintf("%0*x%s", slotLength, len(name), name))
	}).Reverse()
}

// lots is what SlotOf tells of the wanted slots.
type lots[T metav1.Object] struct {
	slotOf  func(T) string
	mustGo  func(T) bool        // the author's rule, except for those that must stay
	keepers sets.Set[types.UID] // one child in each wanted slot that has any
	vacant  []string            // the slots to fill, those with a creation in flight first
	sent    map[string]string   // a creation in flight of each vacant slot that has one
	open    sets.Set[string]    // the slots to which a marked child may come back
	back    sets.Set[string]    // the slots of the recalls in flight
	places  int                 // how many of the vacant slots may be filled
}

func (l *lots[T]) isOut(c T) bool { return !l.keepers.Has(object.ID(c)) }

// keepers chooses the child that each wanted slot keeps.
func (s *Spec[T]) keepers(owned []T, wanted *slots[T], mustGo func(T) bool) sets.Set[types.UID] {
	keepers, bySlot := sets.New[types.UID](), map[string][]T{}
	for _, c := range owned {
		if slot := s.SlotOf(c); wanted.held.Has(slot) {
			bySlot[slot] = append(bySlot[slot], c)
		}
	}
	gone, ranking, isRanked := sets.New(s.Facts.DeletionsInFlight...), podrank.Options[T]{}, false
	for _, children := range bySlot {
		for _, isBetter := range []func(T) bool{
			func(c T) bool { return !s.Rules.isLeaving(c) },
			func(c T) bool { return !mustGo(c) },
			s.Rules.mustStay, // the other one can go
			// A deletion without an answer may have taken effect, so another child is the better keeper.
			func(c T) bool { return !gone.Has(object.ID(c)) },
		} {
			if better := filter(children, isBetter); len(better) > 0 {
				children = better
			}
		}
		if len(children) > 1 {
			if !isRanked { // once, because it looks at all children
				ranking, isRanked = s.ranking(owned), true
				ranking.MustStay = nil // all of them must stay, or none
			}
			order := podrank.Select(children, len(children), ranking)
			children = []T{order[len(order)-1].Object}
		}
		keepers.Insert(object.ID(children[0]))
	}
	return keepers
}

// lotsOf finds the slots that need a child. A slot is vacant if it has no active child. Under the limits of a rollout,
// a child that must go does not count, so that its successor can come before it goes.
func (s *Spec[T]) lotsOf(owned, marked []T, wanted *slots[T]) *lots[T] {
	rules := s.Rules // fitSlots changes those of the Spec
	mustGo := func(c T) bool { return rules.MustGo != nil && rules.MustGo(c) && !rules.mustStay(c) }
	l := &lots[T]{
		slotOf: s.SlotOf, mustGo: mustGo, keepers: s.keepers(owned, wanted, mustGo),
		sent: map[string]string{}, open: sets.New[string](), back: sets.New[string](),
	}
	occupied, staying, used := sets.New[string](), sets.New[string](), sets.New[string]()
	all := len(owned) + len(s.Facts.Undecided)
	for _, c := range owned {
		slot, leaves, stays := s.SlotOf(c), s.Rules.isLeaving(c), s.Rules.mustStay(c)
		old := s.rolls() && (l.isOut(c) && !stays || mustGo(c))
		if used.Insert(slot); !old || leaves { // one that leaves and is active is replaced when it is gone
			occupied.Insert(slot)
		}
		if !old && !leaves {
			staying.Insert(slot)
		}
		// The number was lowered, and web-7 must stay for an hour. If it took a place, web-0 would be empty for so long.
		all -= one(stays && !leaves && l.isOut(c))
	}
	for _, c := range s.Facts.Undecided {
		occupied.Insert(s.SlotOf(c))
		staying.Insert(s.SlotOf(c))
	}
	recalled := sets.New(s.Facts.UpdatesInFlight...)
	for _, c := range marked {
		if recalled.Has(object.ID(c)) { // it may have been taken back
			occupied.Insert(s.SlotOf(c))
			l.back.Insert(s.SlotOf(c))
			all += one(s.Rules.Active == nil || !s.Rules.Active(c))
		}
	}
	for _, name := range s.Facts.CreationsInFlight {
		slot := SlotIn(name)
		staying.Insert(slot) // for all that is known
		if wanted.held.Has(slot) && !occupied.Has(slot) && l.sent[slot] == "" {
			l.sent[slot] = name
		}
	}
	l.places = int(s.Replicas)
	for _, slot := range wanted.order {
		switch {
		case occupied.Has(slot):
			l.places--
		case l.sent[slot] == "":
			l.vacant = append(l.vacant, slot)
		}
		if !staying.Has(slot) {
			l.open.Insert(slot)
		}
	}
	if _, surge, _ := s.rollout(); s.rolls() { // children that are leaving elsewhere count, too
		l.places = min(l.places, max(int(s.Replicas)+surge-all, 0))
	}
	slices.SortStableFunc(l.vacant, func(a, b string) int { return one(used.Has(a)) - one(used.Has(b)) }) // an empty slot before an overlap
	sent := filter(wanted.order, func(slot string) bool { return l.sent[slot] != "" })
	l.vacant = append(sent, l.vacant...)
	return l
}

// clampRecalls returns the recalls that fill slots, and how many of them need one that is vacant.
func (l *lots[T]) clampRecalls(r *Room[T], changes []Change[T]) (recalls []Change[T], places int) {
	open := l.open.Clone()
	recalls = filter(changes, func(c Change[T]) bool {
		slot, again := l.slotOf(c.Object), r.recalling.Has(object.ID(c.Object))
		if !c.Recall || !open.Has(slot) || !again && l.back.Has(slot) || l.mustGo(c.Object) {
			return false
		}
		if !again && !r.isActive(c.Object) {
			if places >= r.places {
				return false
			}
			places++
		}
		open.Delete(slot)
		return true
	})
	return recalls, places
}

// clampNames returns the names of the creations that fill slots. The recalls fill theirs.
func (l *lots[T]) clampNames(names []string, recalls []Change[T], again, free int) []string {
	left := sets.New(l.vacant...)
	for _, c := range recalls {
		left.Delete(l.slotOf(c.Object))
	}
	return filter(names, func(name string) bool {
		slot := SlotIn(name)
		sent := l.sent[slot]
		may := left.Has(slot) && (sent == name && take(&again) || sent == "" && take(&free))
		if may {
			left.Delete(slot)
		}
		return may
	})
}

// toFill returns the slots for new children. The recalls fill theirs.
func (is *slots[T]) toFill(recalls []Change[T]) []string {
	if is.lots == nil {
		return is.free
	}
	filled := sets.New[string]()
	for _, c := range recalls {
		filled.Insert(is.lots.slotOf(c.Object))
	}
	return filter(is.lots.vacant, func(slot string) bool { return !filled.Has(slot) })
}
