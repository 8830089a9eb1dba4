// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// is refused.
const MaxSlots = 1_000_000

// slots describes the wanted slots. It holds only the names that a plan needs. The zero value
// describes a spec without slots.
type slots struct {
	held    sets.Set[string] // wanted slots whose names belong to an object or are in Facts.Taken
	free    []string         // names of the first free wanted slots, at most as many as a plan can fill
	missing int              // the number of free wanted slots
}

// wanted returns the wanted slots. It calls Slots at most Replicas times. It stops as soon as it
// has found a slot for each name in objs and Taken, and as many free slots as a plan can fill. It
// returns an error if a free slot has an illegal name, or if two slots have the same name.
func (s *Spec[T]) wanted(objs []T) (is slots, err error) {
	if s.Slots == nil {
		return is, nil
	}
	if s.Replicas > MaxSlots {
		return is, s.refuse(InvalidSlots, "replicas %d is more than the %d slots that are possible", s.Replicas, MaxSlots)
	}
	taken, owner := sets.New(s.Facts.Taken...), object.OwnerOf(s.Owner, s.Kind.GroupKind())
	for _, obj := range join(objs, s.Facts.Undecided) {
		if owner.Reaches(obj) {
			taken.Insert(obj.GetName())
		}
	}
	check, chosen := s.checkNames(), sets.New[string]()
	is.held = sets.New[string]()
	for i := 0; i < int(s.Replicas) && (len(is.free) < s.burst() || len(is.held) < len(taken)); i++ {
		name := s.Slots(i)
		switch {
		case is.held.Has(name) || chosen.Has(name):
			return slots{}, s.refuse(InvalidSlots, "slot %d: %q is the name of another slot too", i, name)
		case taken.Has(name):
			is.held.Insert(name)
		case len(is.free) < s.burst():
			if err := check(name); err != nil {
				return slots{}, s.refuse(InvalidSlots, "slot %d is %q: %w", i, name, err)
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
// filter allows one orphan.
func (s *Spec[T]) mayFill(objs []T, wanted slots) func(T) bool {
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
			free.Delete(obj.GetName())
		}
	}
	return func(obj T) bool {
		if owner.Controls(obj) {
			return true
		}
		isFree := free.Has(obj.GetName())
		free.Delete(obj.GetName())
		return isFree
	}
}

// fitSlots changes the rules so that owned children outside the wanted slots must go. Among these
// children, the child in the highest slot is deleted first. If several children share a wanted
// slot, all of them must stay, and only the oldest counts. fitSlots returns the children that
// count, and the others sorted by name and namespace.
func (s *Spec[T]) fitSlots(owned []T, wanted slots) (counted, doubled []T, err error) {
	if s.Slots == nil {
		return owned, nil, nil
	}
	s.Facts.Undecided = nil // an undecided orphan can take only the slot that has its name
	counted, doubled = onePerSlot(owned, wanted)
	isOut := func(child T) bool { return !wanted.held.Has(child.GetName()) }
	order, err := s.orderAfter(highestSlot(isOut))
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
func onePerSlot[T metav1.Object](owned []T, wanted slots) (counted, doubled []T) {
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
func highestSlot[T metav1.Object](isOut func(T) bool) podrank.Criterion[T] {
	return podrank.By("highest slot", func(child T) slot {
		if !isOut(child) {
			return ""
		}
		name := child.GetName()
		return slot(fmt.Sprintf("%0*x%s", slotLength, len(name), name))
	}).Reverse()
}
