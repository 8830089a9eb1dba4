// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/replicas"
)

// wantedSlots returns the names of the slots that are to be filled, nil if there are no
// slots. Of more than MaxSlots, which are refused, it returns the first.
func wantedSlots[C Object](spec *replicas.Spec[C]) sets.Set[string] {
	if spec.Slots == nil {
		return nil
	}
	names := sets.New[string]()
	for i := range int(min(spec.Replicas, replicas.MaxSlots)) {
		names.Insert(spec.Slots(i))
	}
	return names
}

// sameSlots reports whether two specs want the same slots.
func sameSlots[C Object](a, b *replicas.Spec[C]) bool {
	return (a.Slots == nil) == (b.Slots == nil) && wantedSlots(a).Equal(wantedSlots(b))
}

// candidates are the children that a plan is made from. If there are slots, they are without
// strangers that have the name of one: no event tells when those go, so the slot is tried, and
// held.
func (p *pass[O, C]) candidates() []C {
	if p.spec.Slots == nil {
		return p.children
	}
	return slices.DeleteFunc(slices.Clone(p.children), func(c C) bool { return !p.controls(c) && !p.snapshot.Rules.MayCount(c) })
}

// taken returns the names that no child can be created under, from whatever part of the view
// the plan is made: those of objects that the view shows, those that other objects have by
// now, and those of slots that are held.
func (p *pass[O, C]) taken() []string {
	names := slices.Clone(p.asked.Taken)
	if p.spec.Slots == nil {
		return names
	}
	for _, c := range p.candidates() {
		names = append(names, c.GetName())
	}
	for _, n := range p.state.known.Names() {
		if n.IsTaken() {
			names = append(names, n.Name)
		}
	}
	for name, h := range p.state.slots {
		if left := h.remaining(p.Now, 0); !p.wanted.Has(name) {
			delete(p.state.slots, name)
		} else if left > 0 {
			names = append(names, name)
			p.comeBack(left)
		}
	}
	return names
}

// isSlotTaken reports whether a creation failed because another object has the name of the
// slot.
func (p *pass[O, C]) isSlotTaken(err error) bool {
	return p.spec.Slots != nil && apierrors.IsAlreadyExists(err)
}

// holdSlot holds a slot whose name another object has: no event may tell when that is gone.
func (p *pass[O, C]) holdSlot(name string) {
	h := p.state.slots.of(name)
	h.double(p.opts.Now(), slotHoldFirst, slotHoldLast)
	p.comeBack(h.Wait)
}

// mustGo reports whether a child has to go: by the rules, or because its slot is not wanted.
func (p *pass[O, C]) mustGo(c C) bool {
	mustGo := p.spec.Rules.MustGo
	return mustGo != nil && mustGo(c) || p.spec.Slots != nil && !p.wanted.Has(c.GetName())
}

// isEnded reports whether a child of the view is to be discarded.
func (p *pass[O, C]) isEnded(c C) bool {
	discard := p.spec.Rules.Discard
	return discard != nil && discard(c) && p.controls(c) && p.snapshot.Rules.MayCount(c) && c.GetDeletionTimestamp() == nil
}

// activeAndEnded are the active children, and those that are to be discarded.
func (p *pass[O, C]) activeAndEnded() []C {
	if p.spec.Rules.Discard == nil {
		return p.Active
	}
	all := slices.Clone(p.Active)
	for _, c := range p.children {
		if p.isEnded(c) {
			all = append(all, c)
		}
	}
	return all
}
