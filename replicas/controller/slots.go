// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
)

// wantedSlots returns those of the names that the pass knows of, of children and of slots that
// are held, which are names of slots that are to be filled. It is empty if there are too many
// slots, as the spec is refused then.
func (p *pass[O, C]) wantedSlots() sets.Set[string] {
	wanted := sets.New[string]()
	if p.spec.Slots == nil || p.spec.Replicas > replicas.MaxSlots {
		return wanted
	}
	known := sets.New[string]()
	for k := range p.state.holds {
		if k.Reason == NameTaken {
			known.Insert(k.Key)
		}
	}
	for _, c := range p.children {
		if !object.IsNil(c) {
			known.Insert(c.GetName())
		}
	}
	for i := 0; i < int(p.spec.Replicas) && len(wanted) < len(known); i++ {
		if name := p.spec.Slots(i); known.Has(name) {
			wanted.Insert(name)
		}
	}
	return wanted
}

// sameSlots reports whether two specs with the same number of slots want the same ones: those
// of the children that there are, and as many more as a plan fills.
func (p *pass[O, C]) sameSlots(a, b *replicas.Spec[C]) bool {
	if a.Slots == nil || b.Slots == nil {
		return a.Slots == nil && b.Slots == nil
	}
	for i := range min(int(a.Replicas), len(p.children)+cmp.Or(a.BurstReplicas, replicas.DefaultBurstReplicas)) {
		if a.Slots(i) != b.Slots(i) {
			return false
		}
	}
	return true
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
// the plan is made: those of objects that the view shows, and those of slots that are held.
func (p *pass[O, C]) taken() []string {
	names := slices.Clone(p.asked.Taken)
	if p.spec.Slots == nil {
		return names
	}
	for _, c := range p.candidates() {
		names = append(names, c.GetName())
	}
	for k := range p.state.holds {
		switch {
		case k.Reason != NameTaken:
		case !p.wanted.Has(k.Key):
			delete(p.state.holds, k)
		case p.held(NameTaken, k.Key, k.Key, 0):
			names = append(names, k.Key)
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
func (p *pass[O, C]) holdSlot(name string, err error) {
	h := p.state.holds.of(NameTaken, name)
	NameTaken.grow(&h.Hold, p.opts.Now())
	h.why = err
	p.gate(NameTaken, name, h.Wait, err)
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
