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

// Ordinals returns a function for Spec.Slots that names the slots base-0, base-1 and so on. The parameter base is
// usually the owner's name.
func Ordinals(base string) func(i int) string {
	return func(i int) string { return base + "-" + strconv.Itoa(i) }
}

// MaxSlots is the maximum number of slots, and with Spec.Groups that of each group. A spec with Slots and more Replicas
// is refused.
const MaxSlots = 1_000_000

// slots holds the names of wanted slots that a plan needs, and its zero value those of a spec without slots.
type slots[T metav1.Object] struct {
	held      sets.Set[string] // wanted slots whose names belong to an object or are in Facts.Taken
	free      []string         // names of the first free wanted slots, at most as many as a plan can fill
	missing   int              // the number of free wanted slots
	order     []string         // those that are held or free, in their order
	occupancy *occupancy[T]    // with SlotOf; fitSlots sets it
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

// wanted finds the wanted slots that a plan needs.
func (s *Spec[T]) wanted(objs []T) (wanted slots[T], err error) {
	if s.Slots == nil {
		return wanted, nil
	}
	if s.Replicas > MaxSlots {
		return wanted, s.refuse(InvalidSlots, "replicas %d is more than the %d slots that are possible", s.Replicas, MaxSlots)
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
	wanted.held = sets.New[string]()
	// Ten of a million slots are filled. To name all of them takes seconds and a gigabyte, so the loop ends when it has
	// met each name in use and as many free slots as one plan can fill.
	for i := 0; i < int(s.Replicas) && (len(wanted.free) < s.burst() || len(wanted.held) < len(taken)); i++ {
		name := s.Slots(i)
		if s.SlotOf != nil && len(name) > maxBase {
			return slots[T]{}, s.refuse(InvalidSlots, "slot %d is %q, which is longer than %d characters", i, name, maxBase)
		}
		wanted.order = append(wanted.order, name)
		switch {
		case wanted.held.Has(name) || chosen.Has(name):
			return slots[T]{}, s.refuse(InvalidSlots, "slot %d: %q is the name of another slot too", i, name)
		case taken.Has(name):
			wanted.held.Insert(name)
		case len(wanted.free) < s.burst():
			if err := check(name); err != nil {
				return slots[T]{}, s.refuse(InvalidSlots, "slot %d is %q: %w", i, name, err)
			}
			chosen.Insert(name)
			wanted.free = append(wanted.free, name)
		}
	}
	wanted.missing = int(s.Replicas) - len(wanted.held)
	return wanted, nil
}

// mayAdopt returns the filter of the orphans that may be adopted, or nil if all may.
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
		may, listed := filters[s.GroupOf(obj)]
		// An orphan of a group that is not listed would be adopted, and then deleted as surplus.
		return listed && (may == nil || may(obj))
	}
}

// mayFill returns the filter of mayAdopt for one part.
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
	// The adoption of an orphan for web-1 had no answer, so it may be ours already. If a second one were adopted, there
	// would be two in web-1.
	for _, obj := range s.Facts.Undecided {
		free.Delete(s.slotOf(obj))
	}
	return func(obj T) bool {
		if owner.Controls(obj) {
			return true
		}
		slot := s.slotOf(obj)
		isFree := free.Has(slot)
		free.Delete(slot) // so of two orphans for one slot, only the first is adopted
		return isFree
	}
}

// fitSlots returns the children that count and those that share a wanted slot with an older one, and changes the rules
// so that children outside the wanted slots must go, the highest slot first.
func (s *Spec[T]) fitSlots(owned, marked []T, wanted *slots[T]) (counted, doubled []T, err error) {
	if s.Slots == nil {
		return owned, nil, nil
	}
	isOut := func(child T) bool { return !wanted.held.Has(child.GetName()) }
	if s.SlotOf != nil {
		wanted.occupancy = s.occupancyOf(owned, marked, wanted)
		counted, isOut = owned, wanted.occupancy.isOut
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
		// Which of them is wanted is not known, so even the oldest one stays.
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
		// A user who may create objects in some namespace can give the owner's name and UID to a second web-0. The
		// owner has no namespace, so both are its children, and no rule says which of them is wanted.
		if wanted.held.Has(child.GetName()) && compare(child, first[child.GetName()]) != 0 {
			doubled = append(doubled, child)
		} else {
			counted = append(counted, child)
		}
	}
	slices.SortFunc(doubled, compare)
	return counted, doubled
}

// orderAfter returns an order of the given criteria, followed by those of the rules.
func (s *Spec[T]) orderAfter(first ...podrank.Criterion[T]) (podrank.Order[T], error) {
	order := s.Rules.Complete().Order
	if pods, ok := any(podrank.Kubernetes()).(podrank.Order[T]); ok && len(order.Criteria()) == 0 {
		order = pods // the zero Order of pods means this one
	}
	order, err := podrank.NewOrder(slices.Concat(first, order.Criteria())...)
	if err != nil {
		return order, s.failure("%w", err)
	}
	return order, nil
}

// A slot is the length of a name in hexadecimal digits, followed by the name itself. Slots are compared as strings, so
// web-10 is higher than web-9.
type slot string

// String returns the name.
func (s slot) String() string { return string(s[min(slotLength, len(s)):]) }

// slotLength is the number of hexadecimal digits at the start of a slot.
const slotLength = 8

// highestSlot returns a criterion that ranks the children that are out, the one in the highest slot first.
func highestSlot[T metav1.Object](isOut func(T) bool, slotOf func(T) string) podrank.Criterion[T] {
	return podrank.By("highest slot", func(child T) slot {
		if !isOut(child) {
			return ""
		}
		name := slotOf(child)
		return slot(fmt.Sprintf("%0*x%s", slotLength, len(name), name))
	}).Reverse()
}

// An occupancy says, with SlotOf, which children keep the wanted slots, and which slots need a child.
type occupancy[T metav1.Object] struct {
	slotOf    func(T) string
	mustGo    func(T) bool        // the author's rule, except for those that must stay
	keepers   sets.Set[types.UID] // one child in each wanted slot that has any
	vacant    []string            // the slots to fill, those with a creation in flight first
	sent      map[string]string   // a creation in flight of each vacant slot that has one
	open      sets.Set[string]    // the slots to which a marked child may return
	returning sets.Set[string]    // the slots of the recalls in flight
	places    int                 // how many of the vacant slots may be filled
}

func (o *occupancy[T]) isOut(c T) bool { return !o.keepers.Has(object.ID(c)) }

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
			func(c T) bool { return !mustGo(c) }, // the successor, and not the old one
			s.Rules.mustStay,                     // the other one can go
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
				ranking.MustStay = nil // all of them must stay, or none, and Select returns none that must stay
			}
			order := podrank.Select(children, len(children), ranking)
			children = []T{order[len(order)-1].Object}
		}
		keepers.Insert(object.ID(children[0]))
	}
	return keepers
}

// occupancyOf finds out which slots have a child, and which need one.
func (s *Spec[T]) occupancyOf(owned, marked []T, wanted *slots[T]) *occupancy[T] {
	rules := s.Rules // fitSlots changes those of the Spec, and mustGo must not see that
	mustGo := func(c T) bool { return rules.MustGo != nil && rules.MustGo(c) && !rules.mustStay(c) }
	o := &occupancy[T]{
		slotOf: s.SlotOf, mustGo: mustGo, keepers: s.keepers(owned, wanted, mustGo),
		sent: map[string]string{}, open: sets.New[string](), returning: sets.New[string](),
	}
	occupied, staying, used := sets.New[string](), sets.New[string](), sets.New[string]()
	total := len(owned) + len(s.Facts.Undecided)
	for _, c := range owned {
		slot, leaves, stays := s.SlotOf(c), s.Rules.isLeaving(c), s.Rules.mustStay(c)
		// Within the limits of a rollout, a child that must go occupies no slot, so that its successor can come first.
		old := s.rolls() && (o.isOut(c) && !stays || mustGo(c))
		if used.Insert(slot); !old || leaves { // one that leaves and is active is replaced when it is gone
			occupied.Insert(slot)
		}
		if !old && !leaves {
			staying.Insert(slot)
		}
		// The number was lowered, and web-7 must stay for an hour. If it took a place, web-0 would be empty for so long.
		total -= one(stays && !leaves && o.isOut(c))
	}
	for _, c := range s.Facts.Undecided {
		// The adoption may still take effect, or may have done so.
		occupied.Insert(s.SlotOf(c))
		staying.Insert(s.SlotOf(c))
	}
	recalled := sets.New(s.Facts.UpdatesInFlight...)
	for _, c := range marked {
		if recalled.Has(object.ID(c)) { // it may have been taken back
			occupied.Insert(s.SlotOf(c))
			o.returning.Insert(s.SlotOf(c))
			total += one(s.Rules.Active == nil || !s.Rules.Active(c))
		}
	}
	for _, name := range s.Facts.CreationsInFlight {
		slot := SlotIn(name)
		staying.Insert(slot) // its child may exist
		if wanted.held.Has(slot) && !occupied.Has(slot) && o.sent[slot] == "" {
			o.sent[slot] = name
		}
	}
	o.places = int(s.Replicas)
	for _, slot := range wanted.order {
		switch {
		case occupied.Has(slot):
			o.places--
		case o.sent[slot] == "":
			o.vacant = append(o.vacant, slot)
		}
		if !staying.Has(slot) {
			o.open.Insert(slot)
		}
	}
	//	filled <= R + S - total
	if _, surge, _ := s.rollout(); s.rolls() { // children that are leaving elsewhere count, too
		o.places = min(o.places, max(int(s.Replicas)+surge-total, 0))
	}
	slices.SortStableFunc(o.vacant, func(a, b string) int { return one(used.Has(a)) - one(used.Has(b)) }) // an empty slot before an overlap
	// Those come first that may be filled already: sent again, their names make no second child.
	sent := filter(wanted.order, func(slot string) bool { return o.sent[slot] != "" })
	o.vacant = append(sent, o.vacant...)
	return o
}

// clampRecalls returns the recalls that fill slots, and how many places they take.
func (o *occupancy[T]) clampRecalls(r *Room[T], changes []Change[T]) (recalls []Change[T], places int) {
	open := o.open.Clone()
	recalls = filter(changes, func(c Change[T]) bool {
		slot, again := o.slotOf(c.Object), r.recalling.Has(object.ID(c.Object))
		// Another child of the slot was taken back without an answer. With this one there may be two.
		if !c.Recall || !open.Has(slot) || !again && o.returning.Has(slot) || o.mustGo(c.Object) {
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

// clampNames returns the names of creations for slots that are left vacant by these recalls.
func (o *occupancy[T]) clampNames(names []string, recalls []Change[T], again, free int) []string {
	left := sets.New(o.vacant...)
	for _, c := range recalls {
		left.Delete(o.slotOf(c.Object))
	}
	return filter(names, func(name string) bool {
		slot := SlotIn(name)
		sent := o.sent[slot]
		may := left.Has(slot) && (sent == name && take(&again) || sent == "" && take(&free))
		if may {
			left.Delete(slot)
		}
		return may
	})
}

// toFill returns the slots for new children, without those that these recalls fill.
func (w *slots[T]) toFill(recalls []Change[T]) []string {
	if w.occupancy == nil {
		return w.free
	}
	filled := sets.New[string]()
	for _, c := range recalls {
		filled.Insert(w.occupancy.slotOf(c.Object))
	}
	return filter(w.occupancy.vacant, func(slot string) bool { return !filled.Has(slot) })
}
