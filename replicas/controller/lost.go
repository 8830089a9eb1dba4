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

// fewReads is how many children a pass reads one by one. For more, a list is cheaper.
const fewReads = 3

// A look asks the server for children by their names. A look that is one list may lack a child
// that exists but does not match.
type look[C Object] struct {
	start   ledger.Moment
	isList  bool
	version string // of the list
	find    func(ctx context.Context, name types.NamespacedName) (found C, there bool, err error)
}

// looks returns how to look for n children at once.
func (p *pass[O, C]) looks(ctx context.Context, n int) look[C] {
	start := p.state.known.Start()
	if p.calls.soFar(isRead)+n <= fewReads {
		return look[C]{start: start, find: p.read}
	}
	list, err := p.allLive(ctx, start)
	return look[C]{start, true, list.ResourceVersion, func(_ context.Context, name types.NamespacedName) (found C, there bool, _ error) {
		return within(list.Items, name, err)
	}}
}

// allLive lists the children that the owner's selector matches, and notes what the list shows.
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
		return found, false, fmt.Errorf("the read of %q was answered with %q", name, object.Name(found))
	case err == nil:
		err = p.noticeOlder(found)
	}
	return found, err == nil, err
}

// noticeOlder notes a restore if the server has an earlier version of a child than the view.
func (p *pass[O, C]) noticeOlder(found ...C) error {
	isNil, live := object.NilOf[C](), make(map[types.UID]C, len(found))
	for _, c := range found {
		if !isNil(c) {
			live[c.GetUID()] = c
		}
	}
	for _, shown := range p.view.children {
		if is, ok := live[shown.GetUID()]; ok {
			if err := p.restores.noticeOlder(is, shown); err != nil {
				return err
			}
		}
	}
	return nil
}

// within looks for a child in a list, or returns err if the list failed.
func within[C Object](items []C, name types.NamespacedName, err error) (found C, there bool, _ error) {
	i := slices.IndexFunc(items, func(c C) bool { return !object.IsNil(c) && nameOf(c) == name })
	if err != nil || i < 0 {
		return found, false, err
	}
	return items[i], true, nil
}

// lacks notes that a look did not find a child.
func (p *pass[O, C]) lacks(l look[C], id types.UID) {
	if l.isList {
		p.state.known.Lacked(l.start, id, l.version, p.opts.Now())
		return
	}
	p.state.known.Gone(l.start, id, p.opts.Now())
}

// Before children are created, holdTaken checks whether other objects still have names in flight. A
// name that may be free again counts as one more child.
func (p *pass[O, C]) holdTaken(ctx context.Context, scale replicas.Scale[C]) {
	if scale.Create == 0 {
		return
	}
	taken := some(p.state.known.Open(), ledger.Name.IsTaken)
	there := p.lookForNames(ctx, some(taken, func(n ledger.Name) bool { return p.lookIn(n.Name, 0) <= 0 }))
	for _, n := range taken {
		if !there.Has(n.Name) {
			p.view.spec.CreationsInFlight = append(p.view.spec.CreationsInFlight, n.Name)
		}
	}
}

// lookForLost looks for the calls in flight that scale does not send. It looks for names when their
// next look is due, and for deletions when they can no longer take effect. This pass counts all of
// them as in flight, even if the look shows otherwise. The next pass uses what the look found.
// lookForLost reports whether these calls hold something back.
func (p *pass[O, C]) lookForLost(ctx context.Context, scale replicas.Scale[C]) (hold bool) {
	names, doubted := p.notSent(scale)
	if len(names)+len(doubted) == 0 {
		p.state.holds.endAll(LookFailed)
		return false
	}
	p.lookForNames(ctx, some(names, func(n ledger.Name) bool { return p.lookIn(n.Name, n.NextLook(p.opts.Now())) <= 0 }))
	p.lookForDoubted(ctx, some(doubted, func(v unanswered[C]) bool { return p.lookIn(v.child.GetName(), v.lands) <= 0 }))
	spec := p.view.spec
	spec.CreationsInFlight, spec.DeletionsInFlight, spec.Names, spec.Related = nil, nil, nil, nil
	all, _ := replicas.ScaleTo(p.activeAndEnded(), spec) // the plan had no error
	note := func(reason Reason, name string, next time.Duration, holds bool) {
		if next = p.lookIn(name, next); next <= 0 { // the pass ended before the look
			next = LookFailed.row().shortest
		}
		if holds {
			p.gate(reason, name, next, nil)
		}
		hold = hold || holds
		p.comeBack(next)
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

// An unanswered child is one whose deletion was sent without an answer.
type unanswered[C Object] struct {
	child C
	lands time.Duration // how long the deletion may still take effect
}

// notSent returns the names and the active children in flight that are not in scale.
func (p *pass[O, C]) notSent(scale replicas.Scale[C]) (names []ledger.Name, children []unanswered[C]) {
	names = some(p.state.known.Names(), func(n ledger.Name) bool { return !slices.Contains(scale.Names, n.Name) })
	sent := p.state.known.Doubted()
	if len(sent) == 0 {
		return names, nil
	}
	victims := idsOf(scale.Delete).Union(idsOf(p.Scale.Delete)) // also in the second round, which fills slots
	for _, c := range p.Active {
		if at, is := sent[object.ID(c)]; is && !victims.Has(object.ID(c)) {
			children = append(children, unanswered[C]{c, ledger.Landing - p.Now.Sub(at)})
		}
	}
	return names, children
}

// lookIn returns how long to wait before the next look for a child, longer if an earlier look
// failed. 0 or less means now.
func (p *pass[O, C]) lookIn(name string, in time.Duration) time.Duration {
	if !p.held(LookFailed, name, name, 0) {
		return in
	}
	h := p.state.holds[holdKey{LookFailed, name}]
	p.LookErr = h.why
	return max(in, h.remaining(p.Now, 0))
}

// endLook ends the hold of a look that succeeded, and lengthens it after a failure. If too many lists
// are under way, the look is put off instead, and no event is sent.
func (p *pass[O, C]) endLook(ctx context.Context, name string, err error) {
	switch {
	case err == nil:
		p.state.holds.end(name, LookFailed)
		return
	case ctx.Err() != nil:
		p.LookErr = err
		return
	}
	h := p.state.holds.of(LookFailed, name)
	h.why = err
	if errors.As(err, new(heldError)) {
		h.Hold = backoff.Hold{Since: p.opts.Now(), Wait: p.lists.retryIn(err)}
	} else {
		p.tell(LookFailed, "Error looking for "+p.childResource.Resource+": "+err.Error())
		LookFailed.grow(&h.Hold, p.opts.Now())
		h.Wait = max(h.Wait, serverDelay([]error{err}))
	}
	p.LookErr = err
	p.gate(LookFailed, name, h.Wait, err)
}

// lookForNames looks for children by names that were sent, and returns those that are taken. A
// look settles a name if it begins when the requests can no longer take effect.
func (p *pass[O, C]) lookForNames(ctx context.Context, due []ledger.Name) (taken sets.Set[string]) {
	taken = sets.New[string]()
	if len(due) == 0 {
		return taken
	}
	began := p.opts.Now()
	look := p.looks(ctx, len(due))
	for _, n := range due {
		found, there, err := look.find(ctx, n.NamespacedName)
		if p.endLook(ctx, n.Name, err); err != nil {
			continue
		}
		if there {
			taken.Insert(n.Name)
		}
		switch {
		case there && n.Bearer == ledger.Replica: // the view shows it
			if !p.shows(found) {
				p.believe(look.start, found)
			}
			p.bears(found)
		case there:
			p.turnedUp(look.start, found)
		case look.isList && p.isUnlisted(n.NamespacedName): // so the name stays taken
		default:
			p.noneBears(look, n.NamespacedName)
			if n.IsTaken() { // it can be sent again
				p.comeBack(1)
			}
		}
		if p.state.known.Looked(n.NamespacedName, began, p.opts.Now()); n.HasLanded(began) { // its place is free
			p.comeBack(1)
		}
	}
	return taken
}

// lookForDoubted looks for children whose deletion can no longer take effect, and notes the results
// for the next pass.
func (p *pass[O, C]) lookForDoubted(ctx context.Context, late []unanswered[C]) {
	if len(late) == 0 {
		return
	}
	look := p.looks(ctx, len(late))
	for _, d := range late {
		id := object.ID(d.child)
		found, there, err := look.find(ctx, nameOf(d.child))
		if p.endLook(ctx, d.child.GetName(), err); err != nil {
			continue
		}
		p.state.known.Sure(id)
		p.comeBack(1)
		switch {
		case !there || object.ID(found) != id:
			p.lacks(look, id)
		case !p.shows(found): // it is being deleted, or is another owner's now
			p.believe(look.start, found)
		}
	}
}

// some returns the elements of a list for which f returns true.
func some[E any](list []E, f func(E) bool) []E {
	return slices.DeleteFunc(slices.Clone(list), func(e E) bool { return !f(e) })
}

// shows reports whether the view has a child in the version in which it was found.
func (p *pass[O, C]) shows(found C) bool {
	return slices.ContainsFunc(p.view.children, func(c C) bool {
		return object.ID(c) == object.ID(found) && c.GetResourceVersion() == found.GetResourceVersion()
	})
}

// isUnlisted reports whether the view has a child of that name that does not match, for example
// after a release. A list does not show whether such a child exists.
func (p *pass[O, C]) isUnlisted(name types.NamespacedName) bool {
	return slices.ContainsFunc(p.view.children, func(c C) bool {
		return !object.IsNil(c) && nameOf(c) == name && !p.snapshot.Rules.MayCount(c)
	})
}

// noneBears notes that a look found no object of a name. The cache may still show one for a
// while, or as long as its watch hangs.
func (p *pass[O, C]) noneBears(l look[C], name types.NamespacedName) {
	p.state.known.NoneBears(name)
	for _, c := range p.view.children {
		if !object.IsNil(c) && nameOf(c) == name {
			p.lacks(l, object.ID(c))
		}
	}
}

// turnedUp counts a child that a look found on the server unexpectedly.
func (p *pass[O, C]) turnedUp(start ledger.Moment, found C) ledger.Bearer {
	if (p.controls(found) || p.isOurs(found)) && p.rules.Active(found) {
		p.believe(start, found)
		p.comeBack(1)
	}
	return p.bears(found)
}

// bears notes that a child has its name, and returns what the child is to the owner.
func (p *pass[O, C]) bears(c C) ledger.Bearer {
	is, ours := p.snapshot.Rules.Bearer(c)
	p.state.known.Bears(nameOf(c), object.ID(c), is, ours)
	return is
}
