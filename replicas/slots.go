// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
)

// Ordinals returns n names for Spec.Slots: base-0, base-1 and so on. base is usually the
// owner's name. A negative n is 0.
func Ordinals(base string, n int32) []string {
	var slots []string
	for i := range n {
		slots = append(slots, base+"-"+strconv.Itoa(int(i)))
	}
	return slots
}

func (s *Spec[T]) hasSlots() bool { return len(s.Slots) > 0 }

// wanted returns the slots that are to be filled.
func (s *Spec[T]) wanted() []string { return s.Slots[:s.Replicas] }

// checkSlots refuses slots that no children can have.
func (s *Spec[T]) checkSlots() error {
	if !s.hasSlots() {
		return nil
	}
	if len(s.Slots) < int(s.Replicas) {
		return refuse(s.Owner, s.Kind, InvalidSlots, "there are %d slots for %d replicas", len(s.Slots), s.Replicas)
	}
	check, seen := s.checkNames(), make(sets.Set[string], len(s.Slots))
	for i, name := range s.Slots {
		if err := check(name); err != nil {
			return refuse(s.Owner, s.Kind, InvalidSlots, "slots[%d] is %q: %w", i, name, err)
		}
		if seen.Has(name) {
			return refuse(s.Owner, s.Kind, InvalidSlots, "slots[%d]: %q is listed twice", i, name)
		}
		seen.Insert(name)
	}
	return nil
}

// mayAdopt returns the filter of orphans: those that have a wanted slot to themselves. It is
// nil if there are no slots.
func (s *Spec[T]) mayAdopt(objs []T) func(T) bool {
	if !s.hasSlots() {
		return nil
	}
	free, owner, counts := sets.New(s.wanted()...), object.OwnerOf(s.Owner, s.Kind.GroupKind()), s.counts()
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

// fitSlots makes those of the owned children go that are in no wanted slot, the highest
// slot first.
func (s *Spec[T]) fitSlots(owned []T) error {
	if !s.hasSlots() {
		return nil
	}
	wanted, held := sets.New(s.wanted()...), make(map[string]T, len(owned))
	for _, child := range owned {
		name := child.GetName()
		if other, twice := held[name]; twice && wanted.Has(name) {
			return s.failure("children %q and %q are in one slot", object.Name(other), object.Name(child))
		}
		held[name] = child
	}
	isOut := func(child T) bool { return !wanted.Has(child.GetName()) }
	order, err := podrank.NewOrder(append([]podrank.Criterion[T]{s.highestSlot(isOut)}, s.criteria()...)...)
	if err != nil {
		return s.failure("%w", err)
	}
	mustGo := s.Rules.MustGo
	s.Rules.MustGo = func(child T) bool { return isOut(child) || mustGo != nil && mustGo(child) }
	s.Rules.Order = order
	return nil
}

// criteria are those of the order, also if that is the zero one.
func (s *Spec[T]) criteria() []podrank.Criterion[T] {
	order := s.Rules.Complete().Order
	if pods, ok := any(podrank.Kubernetes()).(podrank.Order[T]); ok && len(order.Criteria()) == 0 {
		order = pods
	}
	return order.Criteria()
}

// A slot is a name behind its place: of two slots the one whose text is greater is higher.
// What is no slot is higher than all, with numbers in their order: web-10 above web-9.
type slot string

// String returns the name.
func (s slot) String() string {
	if s == "" {
		return "wanted"
	}
	return string(s[slotPlace:])
}

// slotPlace is how long a place is, as text.
const slotPlace = 2 * 8

// highestSlot is the criterion by which the highest slot goes first of those that are out.
func (s *Spec[T]) highestSlot(isOut func(T) bool) podrank.Criterion[T] {
	places := make(map[string]int, len(s.Slots))
	for i, name := range s.Slots {
		places[name] = i
	}
	return podrank.By("highest slot", func(child T) slot {
		name := child.GetName()
		place, isSlot := places[name]
		switch {
		case !isOut(child):
			return ""
		case !isSlot:
			place = math.MaxInt32
		}
		return slot(fmt.Sprintf("%08x%08x%s", place, len(name), name))
	}).Reverse()
}

// free returns the wanted slots that no child is in, and whose names nothing has.
func (s *Spec[T]) free(objs []T) []string {
	taken, owner := sets.New(s.Taken...), object.OwnerOf(s.Owner, s.Kind.GroupKind())
	for _, obj := range objs {
		if owner.Reaches(obj) {
			taken.Insert(obj.GetName())
		}
	}
	return slices.DeleteFunc(slices.Clone(s.wanted()), taken.Has)
}
