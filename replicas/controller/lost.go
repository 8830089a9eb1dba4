// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// lookForLost looks on the server for the calls without an answer that are due, and for the names that the server has
// just called taken. The next pass plans with what it finds, because this one has counted all of them as in flight. The
// result held is true if these calls keep the plan from creating, changing or deleting more than scale.
func (p *pass[O, C]) lookForLost(ctx context.Context, scale replicas.Scale[C], taken []types.NamespacedName) (found findings[C], held bool) {
	known, now := p.state.ledger, p.opts.Now()
	names, doubted := known.Names(), p.lostCalls()
	if len(names)+len(doubted)+len(taken) == 0 {
		p.state.holds.end("", LookFailed)
		return nil, false
	}
	isPlanned := sets.New(scale.Names...).Has
	due := filter(names, func(n ledger.Name) bool {
		// Due are the names that this plan does not send again, and those that this pass has sent. The creation of web-bbbbb had no
		// answer, and then the owner was scaled to none. Without a look the pod would live until the cache shows it.
		return n.NextCheck(now) <= 0 && (!isPlanned(n.Name) || !n.Sent.Before(p.Now))
	})
	for _, name := range taken {
		due = append(due, ledger.Name{NamespacedName: name})
	}
	found = p.lookFor(ctx, due, filter(doubted, func(v lostCall[C]) bool {
		// A call of this pass may have taken effect. If the child is still there, the next look is due when the call can no
		// longer take effect.
		return !v.sent.Before(p.Now) || now.Sub(v.sent) >= ledger.MaxRequestAge
	}))
	now = p.opts.Now() // a list may have hung for half a minute
	// If nothing were in flight, this would be the plan. What it has more than scale, these calls hold back.
	facts := p.facts
	facts.CreationsInFlight, facts.DeletionsInFlight, facts.UpdatesInFlight, facts.Names, facts.Related = nil, nil, nil, nil, nil
	whole, _ := replicas.ScaleTo(slices.Concat(p.Active, p.Ended, p.Terminating), withFacts(p.spec, facts)) // the plan had no error
	wait := func(reason GateReason, name string, next time.Duration, holds bool) {
		if next = max(next, p.state.holds[holdKey{LookFailed, ""}].remaining(now, "")); next <= 0 {
			// The context ended before the look, or two lists were under way. The look is still due, so each pass would ask
			// for the next one at once.
			next = p.spread(LookFailed.row().shortest)
		}
		if held = held || holds; holds {
			p.gate(reason, name, next, nil)
		} else {
			p.requeueAfter(next)
		}
	}
	for _, n := range known.Names() {
		if !isPlanned(n.Name) {
			wait(CreationInFlight, n.Name, n.NextCheck(now), whole.Create > scale.Create && n.Holder == ledger.NoObject)
		}
	}
	calls := known.InFlight()
	deletions, updates := sets.New(calls.Deletions...), sets.New(calls.Updates...)
	for _, v := range p.lostCalls() {
		id, name, next := object.ID(v.child), v.child.GetName(), v.sent.Add(ledger.MaxRequestAge+1).Sub(now)
		if deletions.Has(id) {
			wait(DeletionInFlight, name, next, len(whole.Delete) > len(scale.Delete) && p.rules.Active(v.child))
		}
		if updates.Has(id) {
			wait(UpdateInFlight, name, next, len(whole.Update) > len(scale.Update))
		}
	}
	return found, held
}

// A lostCall is a child with a deletion or change that had no answer.
type lostCall[C Object] struct {
	child C
	sent  time.Time
}

func (p *pass[O, C]) lostCalls() (children []lostCall[C]) {
	sent := p.state.ledger.UnansweredCalls()
	if len(sent) == 0 {
		return nil
	}
	for _, c := range p.view.children {
		if at, ok := sent[object.ID(c)]; ok {
			children = append(children, lostCall[C]{c, at})
		}
	}
	return children
}

// lookFor looks on the server for calls without an answer. It asks for the next pass at once if something is settled.
func (p *pass[O, C]) lookFor(ctx context.Context, names []ledger.Name, deletions []lostCall[C]) findings[C] {
	found, n := findings[C]{}, len(names)+len(deletions)
	if n == 0 {
		return found
	}
	if p.held(LookFailed, "", "", "") {
		return found
	}
	began := p.opts.Now()
	look, failed := p.newLook(ctx, n), error(nil)
	find := func(name types.NamespacedName) (f finding[C], ok bool) {
		if f, ok = found[name]; ok { // a lost creation and a lost deletion under one name need one read
			return f, true
		}
		child, there, err := look.find(ctx, name)
		if err != nil {
			failed = cmp.Or(failed, err)
			return f, false
		}
		found[name] = finding[C]{look.start, child, there}
		return found[name], true
	}
	for _, n := range names {
		if f, ok := find(n.NamespacedName); ok {
			p.settleName(look, n, f, found, began)
		}
	}
	for _, v := range deletions {
		if f, ok := find(nameOf(v.child)); ok {
			p.settleChild(look, v, f, began)
		}
	}
	if failed == nil {
		p.state.holds.end("", LookFailed)
	} else if ctx.Err() == nil && !errors.Is(failed, errListsBusy) { // in these two cases no read has failed
		p.sendEventOnce(LookFailed, "Error looking for "+p.childResource.Resource+": "+failed.Error())
		p.holdCalls(LookFailed, "", "", failed)
	}
	return found
}

// settleName records what a look has found under the name of a creation without an answer.
func (p *pass[O, C]) settleName(l look[C], n ledger.Name, f finding[C], found findings[C], began time.Time) {
	known := p.state.ledger
	switch {
	case f.there:
		p.observeFound(l.start, f.child, n.Holder == ledger.Replica)
	case l.isList && p.isUnlisted(n.NamespacedName):
		// Four creations had no answer, and a user then gave the pods other labels. No list contains them, but they have
		// their names. If each list freed the names, each pass would cause the next one at once, with its own list.
		delete(found, n.NamespacedName)
	default:
		known.NameFree(n.NamespacedName)
		for _, c := range p.view.children {
			// The pod is gone, and a cache that is behind shows it. Without this note the view would go on to say that the
			// pod has the name, and each pass would look again at once.
			if nameOf(c) == n.NamespacedName {
				p.recordMissing(l, object.ID(c))
			}
		}
		if n.IsTaken() { // the other object has left the name, which can be sent again
			p.requeueAfter(1)
		}
	}
	known.NameChecked(n.NamespacedName, began, p.opts.Now())
	// The look began ledger.MaxRequestAge after the last sending. No request can take effect any longer, so the name is
	// dropped, and the next pass may create a child in its place.
	if _, open := known.SentTo(n.Name); !open && !n.Sent.IsZero() {
		p.requeueAfter(1)
	}
}

// settleChild records what a look has found of a child with a call that had no answer.
func (p *pass[O, C]) settleChild(l look[C], v lostCall[C], f finding[C], began time.Time) {
	known, id := p.state.ledger, object.ID(v.child)
	switch {
	case !f.there:
		p.recordMissing(l, id)
	case object.ID(f.child) != id: // the child is gone, and another one that the cache lacks has its name
		known.ObserveDeleted(l.start, id, p.opts.Now())
		p.observeFound(l.start, f.child, false)
	default:
		if !p.viewHas(f.child) {
			// The cache shows web-a as it was, and web-a is no longer the owner's. The next pass must not delete it.
			p.observe(l.start, f.child)
			p.requeueAfter(1)
		}
		if !p.leaves(f.child) && began.Sub(v.sent) < ledger.MaxRequestAge {
			return // the call may still take effect, unless the child is newer than the version in it, as the next view finds
		}
	}
	known.CallAnswered(id)
	p.requeueAfter(1)
}

// findings are what a look has found under the names of calls without an answer.
type findings[C Object] map[types.NamespacedName]finding[C]

type finding[C Object] struct {
	start ledger.Moment
	child C
	there bool
}

// A look is a search for children on the server by name, with a read for each child or with one list.
type look[C Object] struct {
	start   ledger.Moment
	isList  bool
	version string // the resourceVersion of the list
	find    func(ctx context.Context, name types.NamespacedName) (found C, there bool, err error)
}

// newLook returns a look for n children, which it lists if the pass has to look for many.
func (p *pass[O, C]) newLook(ctx context.Context, n int) look[C] {
	start := p.state.ledger.Start()
	reads := filter(p.calls.inOrder(), func(c Call) bool { return c.Verb == "Get" })
	if len(reads)+n <= fewReads {
		return look[C]{start: start, find: p.readChild}
	}
	list, err := p.allLive(ctx, start)
	return look[C]{start, true, list.Version, func(_ context.Context, name types.NamespacedName) (found C, there bool, _ error) {
		return findNamed(list.Items, name, err)
	}}
}

// fewReads is how many children a pass reads one by one. For more of them, one list is cheaper.
const fewReads = 3

// findNamed finds a child in a list that failed with err if this is not nil.
func findNamed[C Object](items []C, name types.NamespacedName, err error) (found C, there bool, _ error) {
	i := slices.IndexFunc(items, func(c C) bool { return !object.IsNil(c) && nameOf(c) == name })
	if err != nil || i < 0 {
		return found, false, err
	}
	return items[i], true, nil
}

// recordMissing records in the ledger that a look did not find a child.
func (p *pass[O, C]) recordMissing(l look[C], id types.UID) {
	if l.isList { // it also lacks children that no longer match the selector
		p.state.ledger.ObserveMissing(l.start, id, l.version, p.opts.Now())
		return
	}
	p.state.ledger.ObserveDeleted(l.start, id, p.opts.Now())
}

// observeFound records an object that a look has found under a name.
func (p *pass[O, C]) observeFound(start ledger.Moment, found C, isInView bool) {
	// Another owner's pod has the name, or the child has ended. It fills no place, so only its name is recorded, unless
	// the view still counts it.
	if !p.viewHas(found) && (isInView || (p.controls(found) || p.isOurs(found)) && p.rules.Active(found)) {
		p.observe(start, found)
	}
	p.recordName(found)
}

func (p *pass[O, C]) recordName(c C) {
	holder, ours := p.snapshot.Rules.Holder(c)
	p.state.ledger.NameHeld(nameOf(c), object.ID(c), holder, ours)
}

// viewHas reports whether the view contains this version of the found child.
func (p *pass[O, C]) viewHas(found C) bool {
	return slices.ContainsFunc(p.view.children, func(c C) bool {
		return object.ID(c) == object.ID(found) && c.GetResourceVersion() == found.GetResourceVersion()
	})
}

// isUnlisted reports whether the view has a child of this name that no live list of the owner contains, such as one
// that was released.
func (p *pass[O, C]) isUnlisted(name types.NamespacedName) bool {
	return slices.ContainsFunc(p.view.children, func(c C) bool {
		return !object.IsNil(c) && nameOf(c) == name && !p.snapshot.Rules.MayCount(c)
	})
}

// filter returns the elements of list for which f returns true.
func filter[E any](list []E, f func(E) bool) []E {
	return slices.DeleteFunc(slices.Clone(list), func(e E) bool { return !f(e) })
}
