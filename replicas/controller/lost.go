// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// fewReads is the maximum number of children that a pass reads one by one. For a larger number of
// children, one list is cheaper.
const fewReads = 3

// A look is a search for children on the server by name. It makes one read for each child, or one list. A
// child that exists but does not match the selector may be missing from the list.
type look[C Object] struct {
	start   ledger.Moment
	isList  bool
	version string // the resourceVersion of the list
	find    func(ctx context.Context, name types.NamespacedName) (found C, there bool, err error)
}

// newLook returns a look that can search for n children on the server. If this pass would make more than
// fewReads single reads, newLook lists the children once. Otherwise the look reads the children one by one.
func (p *pass[O, C]) newLook(ctx context.Context, n int) look[C] {
	start := p.state.known.Start()
	if p.calls.soFar(isRead)+n <= fewReads {
		return look[C]{start: start, find: p.read}
	}
	list, err := p.allLive(ctx, start)
	return look[C]{start, true, list.ResourceVersion, func(_ context.Context, name types.NamespacedName) (found C, there bool, _ error) {
		return findNamed(list.Items, name, err)
	}}
}

// allLive lists the children that the owner's selector matches, and records the result in the ledger.
func (p *pass[O, C]) allLive(ctx context.Context, start ledger.Moment) (List[C], error) {
	list, err := p.askList(ctx)
	if err != nil {
		return list, err
	}
	if err := p.noticeOlder(list.Items...); err != nil {
		return list, err
	}
	return list, p.state.known.Listed(start, ledger.List[C]{Items: list.Items, Version: list.ResourceVersion}, p.snapshot, p.opts.Now())
}

func (p *pass[O, C]) read(ctx context.Context, name types.NamespacedName) (found C, there bool, err error) {
	found, err = p.askChild(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return found, false, nil
	case err == nil && object.IsNil(found):
		return found, false, errNoObject
	case err == nil && nameOf(found) != name:
		return found, false, fmt.Errorf("the read of %q returned %q", name, object.Name(found))
	case err == nil:
		err = p.noticeOlder(found)
	}
	return found, err == nil, err
}

// noticeOlder compares the view with children that the server returned. If the server's version of a
// child is older than the version in the view, the server was restored from a backup. noticeOlder then
// records the restore and returns an error.
func (p *pass[O, C]) noticeOlder(found ...C) error {
	isNil, live := object.NilOf[C](), make(map[types.UID]C, len(found))
	for _, c := range found {
		if !isNil(c) {
			live[c.GetUID()] = c
		}
	}
	for _, shown := range p.view.children {
		if is, ok := live[shown.GetUID()]; ok {
			if err := p.restores.noticeOlder(is, shown.GetResourceVersion()); err != nil {
				return err
			}
		}
	}
	return nil
}

// findNamed returns the child with the given name from the result of a list call. If the list call failed
// with err, findNamed returns err.
func findNamed[C Object](items []C, name types.NamespacedName, err error) (found C, there bool, _ error) {
	i := slices.IndexFunc(items, func(c C) bool { return !object.IsNil(c) && nameOf(c) == name })
	if err != nil || i < 0 {
		return found, false, err
	}
	return items[i], true, nil
}

// recordMissing records in the ledger that a live read or list did not find the child with the given UID.
func (p *pass[O, C]) recordMissing(l look[C], id types.UID) {
	if l.isList {
		p.state.known.Lacked(l.start, id, l.version, p.opts.Now())
		return
	}
	p.state.known.Gone(l.start, id, p.opts.Now())
}

// holdTaken is called before children are created. While another object uses the name of a creation in
// flight, this creation cannot take effect. Therefore holdTaken checks whether other objects still use these
// names. If it finds no object with a name, the creation with this name counts as one more child, because the
// creation may still take effect.
func (p *pass[O, C]) holdTaken(ctx context.Context, scale replicas.Scale[C]) {
	if scale.Create == 0 {
		return
	}
	taken := filter(p.state.known.Open(), ledger.Name.IsTaken)
	there := p.lookForNames(ctx, filter(taken, func(n ledger.Name) bool { return p.lookIn(n.Name, 0) <= 0 }))
	for _, n := range taken {
		if !there.Has(n.Name) {
			p.view.spec.CreationsInFlight = append(p.view.spec.CreationsInFlight, n.Name)
		}
	}
}

// lookForLost checks on the server whether calls in flight took effect. It skips the calls in scale,
// because this pass sends them again. A creation is checked when the next read of its name is due. A
// deletion is checked only when its call can no longer take effect, because the child may still be deleted
// until then. In this pass, all these calls still count as in flight. The result of the check is used in
// the next pass. lookForLost returns true if the pass postpones other creations or deletions because of
// these calls.
func (p *pass[O, C]) lookForLost(ctx context.Context, scale replicas.Scale[C]) (hold bool) {
	names, doubted := p.notSent(scale)
	if len(names)+len(doubted) == 0 {
		p.state.holds.endAll(LookFailed)
		return false
	}
	p.lookForNames(ctx, filter(names, func(n ledger.Name) bool { return p.lookIn(n.Name, n.NextLook(p.opts.Now())) <= 0 }))
	p.lookForDoubted(ctx, filter(doubted, func(v unanswered[C]) bool { return p.lookIn(v.child.GetName(), v.lands) <= 0 }))
	spec := p.view.spec
	spec.CreationsInFlight, spec.DeletionsInFlight, spec.Names, spec.Related = nil, nil, nil, nil
	all, _ := replicas.ScaleTo(p.activeAndEnded(), spec) // the plan had no error
	note := func(reason Reason, name string, next time.Duration, holds bool) {
		if next = p.lookIn(name, next); next <= 0 { // the pass ended before it checked the server
			next = LookFailed.row().shortest
		}
		if holds {
			p.gate(reason, name, next, nil)
		}
		hold = hold || holds
		p.requeueIn(next)
	}
	names, doubted = p.notSent(scale)
	for _, n := range names {
		note(CreationInFlight, n.Name, n.NextLook(p.opts.Now()), all.Create > scale.Create && n.Bearer == ledger.Nobody)
	}
	for _, v := range doubted {
		note(DeletionInFlight, v.child.GetName(), v.lands+1, len(all.Delete) > len(scale.Delete))
	}
	return hold
}

// unanswered describes an active child whose delete call was sent but had no answer.
type unanswered[C Object] struct {
	child C
	lands time.Duration // how long the deletion may still take effect
}

// notSent returns the calls in flight that this pass does not send again. The creations are returned as
// names, and the deletions as the active children to delete.
func (p *pass[O, C]) notSent(scale replicas.Scale[C]) (names []ledger.Name, children []unanswered[C]) {
	names = filter(p.state.known.Names(), func(n ledger.Name) bool { return !slices.Contains(scale.Names, n.Name) })
	sent := p.state.known.Doubted()
	if len(sent) == 0 {
		return names, nil
	}
	victims := idsOf(scale.Delete)
	for _, c := range p.Active {
		if at, is := sent[object.ID(c)]; is && !victims.Has(object.ID(c)) {
			children = append(children, unanswered[C]{c, ledger.Landing - p.Now.Sub(at)})
		}
	}
	return names, children
}

// lookIn returns the delay before the server is next checked for a child. If no earlier check failed, the
// result is the given delay. After a failed check, the result may be longer. If the result is 0 or less,
// the check is due now.
func (p *pass[O, C]) lookIn(name string, in time.Duration) time.Duration {
	if !p.held(LookFailed, name, name, "") {
		return in
	}
	h := p.state.holds[holdKey{LookFailed, name}]
	p.LookErr = h.why
	return max(in, h.remaining(p.Now, ""))
}

// endLook handles the result of a lookup by name. If the lookup succeeded, endLook ends the hold of the
// name. If the lookup failed, endLook lengthens the hold and sends an event. If the lookup failed because
// live lists are on hold, endLook postpones it and sends no event.
func (p *pass[O, C]) endLook(ctx context.Context, name string, err error) {
	switch {
	case err == nil:
		p.state.holds.end(name, LookFailed)
		return
	case ctx.Err() != nil:
		p.LookErr = err
		return
	}
	h := p.state.holds.getOrAdd(LookFailed, name)
	h.why = err
	if errors.As(err, new(heldError)) {
		h.Hold = backoff.Hold{Since: p.opts.Now(), Wait: p.lists.retryIn(err)}
	} else {
		p.sendEventOnce(LookFailed, "Error looking for "+p.childResource.Resource+": "+err.Error())
		LookFailed.grow(&h.Hold, p.opts.Now())
		h.Wait = max(h.Wait, serverDelay([]error{err}))
	}
	p.LookErr = err
	p.gate(LookFailed, name, h.Wait, err)
}

// lookForNames checks which names of creations in flight are used by objects on the server, and returns these
// names. After the time ledger.Landing, a creation can no longer take effect. If this time is over for all
// creations with a name when the check begins, the ledger drops the name.
func (p *pass[O, C]) lookForNames(ctx context.Context, due []ledger.Name) (taken sets.Set[string]) {
	taken = sets.New[string]()
	if len(due) == 0 {
		return taken
	}
	began := p.opts.Now()
	look := p.newLook(ctx, len(due))
	for _, n := range due {
		found, there, err := look.find(ctx, n.NamespacedName)
		if p.endLook(ctx, n.Name, err); err != nil {
			continue
		}
		if there {
			taken.Insert(n.Name)
		}
		switch {
		case there && n.Bearer == ledger.Replica: // the view contains this child
			if !p.viewHas(found) {
				p.believe(look.start, found)
			}
			p.recordName(found)
		case there:
			p.turnedUp(look.start, found)
		case look.isList && p.isUnlisted(n.NamespacedName): // the list cannot contain this child, so the name may still be in use
		default:
			p.recordNoName(look, n.NamespacedName)
			if n.IsTaken() { // a creation with this name can be sent again
				p.requeueIn(1)
			}
		}
		if p.state.known.Looked(n.NamespacedName, began, p.opts.Now()); n.HasLanded(began) { // the next pass no longer counts the name as a child
			p.requeueIn(1)
		}
	}
	return taken
}

// lookForDoubted looks on the server for children whose delete call had no answer and can no longer take
// effect. It records the results for the next pass.
func (p *pass[O, C]) lookForDoubted(ctx context.Context, late []unanswered[C]) {
	if len(late) == 0 {
		return
	}
	look := p.newLook(ctx, len(late))
	for _, d := range late {
		id := object.ID(d.child)
		found, there, err := look.find(ctx, nameOf(d.child))
		if p.endLook(ctx, d.child.GetName(), err); err != nil {
			continue
		}
		p.state.known.Sure(id)
		p.requeueIn(1)
		switch {
		case !there || object.ID(found) != id:
			p.recordMissing(look, id)
		case !p.viewHas(found): // the child has changed, and may have another owner
			p.believe(look.start, found)
		}
	}
}

// filter returns the elements of list for which f returns true.
func filter[E any](list []E, f func(E) bool) []E {
	return slices.DeleteFunc(slices.Clone(list), func(e E) bool { return !f(e) })
}

// viewHas reports whether the view contains this version of the found child.
func (p *pass[O, C]) viewHas(found C) bool {
	return slices.ContainsFunc(p.view.children, func(c C) bool {
		return object.ID(c) == object.ID(found) && c.GetResourceVersion() == found.GetResourceVersion()
	})
}

// isUnlisted reports whether a child in the view has the given name, but never appears in the owner's live
// lists. For example, the child was released. A live list then cannot show whether the child exists.
func (p *pass[O, C]) isUnlisted(name types.NamespacedName) bool {
	return slices.ContainsFunc(p.view.children, func(c C) bool {
		return !object.IsNil(c) && nameOf(c) == name && !p.snapshot.Rules.MayCount(c)
	})
}

// recordNoName records that a read or list found no object with the given name. The view may still contain
// an object with this name, because the watch of the cache may be behind.
func (p *pass[O, C]) recordNoName(l look[C], name types.NamespacedName) {
	p.state.known.NoneBears(name)
	for _, c := range p.view.children {
		if !object.IsNil(c) && nameOf(c) == name {
			p.recordMissing(l, object.ID(c))
		}
	}
}

// turnedUp records an object that was found on the server but is missing from the view.
func (p *pass[O, C]) turnedUp(start ledger.Moment, found C) ledger.Bearer {
	if (p.controls(found) || p.isOurs(found)) && p.rules.Active(found) {
		p.believe(start, found)
		p.requeueIn(1)
	}
	return p.recordName(found)
}

// recordName records in the ledger that the name of c is in use, and returns how c is related to the
// owner.
func (p *pass[O, C]) recordName(c C) ledger.Bearer {
	is, ours := p.snapshot.Rules.Bearer(c)
	p.state.known.Bears(nameOf(c), object.ID(c), is, ours)
	return is
}
