// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
)

// Ordinals returns a function for Spec.Slots, which names base-0, base-1 and so on. base is
// usually the owner's name.
func Ordinals(base string) func(i int) string {
	return func(i int) string { return base + "-" + strconv.Itoa(i) }
}

// MaxSlots is how many slots a spec can have: each plan names all of them. More Replicas are
// refused if the spec has slots.
const MaxSlots = 1_000_000

// wanted returns the names of the slots that are to be filled. It refuses those that no
// children can have.
func (s *Spec[T]) wanted() ([]string, error) {
	if s.Slots == nil {
		return nil, nil
	}
	if s.Replicas > MaxSlots {
		return nil, refuse(s.Owner, s.Kind, InvalidSlots, "replicas %d is more than the %d slots that are possible", s.Replicas, MaxSlots)
	}
	check, seen := s.checkNames(), sets.New[string]()
	var names []string
	for i := range int(s.Replicas) {
		name := s.Slots(i)
		if err := check(name); err != nil {
			return nil, refuse(s.Owner, s.Kind, InvalidSlots, "slot %d is %q: %w", i, name, err)
		}
		if seen.Has(name) {
			return nil, refuse(s.Owner, s.Kind, InvalidSlots, "slot %d: %q is the name of another slot too", i, name)
		}
		seen.Insert(name)
		names = append(names, name)
	}
	return names, nil
}

// mayAdopt returns the filter of orphans: those that have a wanted slot to themselves. It is
// nil if there are no slots.
func (s *Spec[T]) mayAdopt(objs []T, wanted []string) func(T) bool {
	if s.Slots == nil {
		return nil
	}
	free, owner, counts := sets.New(wanted...), object.OwnerOf(s.Owner, s.Kind.GroupKind()), s.counts()
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
func (s *Spec[T]) fitSlots(owned []T, names []string) error {
	if s.Slots == nil {
		return nil
	}
	wanted, held := sets.New(names...), make(map[string]T, len(owned))
	for _, child := range owned {
		name := child.GetName()
		if other, twice := held[name]; twice && wanted.Has(name) {
			return s.failure("children %q and %q are in one slot", object.Name(other), object.Name(child))
		}
		held[name] = child
	}
	isOut := func(child T) bool { return !wanted.Has(child.GetName()) }
	order, err := podrank.NewOrder(append([]podrank.Criterion[T]{highestSlot(isOut)}, s.criteria()...)...)
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

// A slot is a name that follows its length, as text. The greater text is the higher slot, so
// web-10 is above web-9.
type slot string

// String returns the name.
func (s slot) String() string { return string(s[min(slotLength, len(s)):]) }

// slotLength is how long a length is, as text.
const slotLength = 8

// highestSlot is the criterion by which the highest slot goes first of those that are out.
func highestSlot[T metav1.Object](isOut func(T) bool) podrank.Criterion[T] {
	return podrank.By("highest slot", func(child T) slot {
		if !isOut(child) {
			return ""
		}
		name := child.GetName()
		return slot(fmt.Sprintf("%0*x%s", slotLength, len(name), name))
	}).Reverse()
}

// free returns the wanted slots that no child is in, and whose names nothing has.
func (s *Spec[T]) free(objs []T, wanted []string) []string {
	taken, owner := sets.New(s.Taken...), object.OwnerOf(s.Owner, s.Kind.GroupKind())
	for _, obj := range objs {
		if owner.Reaches(obj) {
			taken.Insert(obj.GetName())
		}
	}
	return slices.DeleteFunc(wanted, taken.Has)
}
