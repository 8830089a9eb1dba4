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

// lookForLost looks on the server for the calls without an answer that are due: those of this pass at once, and
// those of earlier passes after a delay. It also looks for the names that the server has just called taken. The
// plan has counted all of them as in flight, so the next pass uses what is found. The result held reports
// whether they keep this pass from creating or deleting other children than those in scale.
func (p *pass[O, C]) lookForLost(ctx context.Context, scale replicas.Scale[C], taken []types.NamespacedName) (found findings[C], held bool) {
	known, now := p.state.known, p.opts.Now()
	names, doubted := known.Names(), p.lostCalls()
	if len(names)+len(doubted)+len(taken) == 0 {
		p.state.holds.end("", LookFailed)
		return nil, false
	}
	isPlanned := sets.New(scale.Names...).Has
	due := filter(names, func(n ledger.Name) bool {
		return n.NextCheck(now) <= 0 && (!isPlanned(n.Name) || !n.Sent.Before(p.Now)) // a later pass sends the others again
	})
	for _, name := range taken {
		due = append(due, ledger.Name{NamespacedName: name})
	}
	found = p.lookFor(ctx, due, filter(doubted, func(v lostCall[C]) bool {
		// A deletion of this pass may have taken effect. If the child is still there, the next look is due when it no
		// longer can.
		return !v.sent.Before(p.Now) || now.Sub(v.sent) >= ledger.MaxRequestAge
	}))
	now = p.opts.Now() // a list may have hung for half a minute
	facts := p.facts
	facts.CreationsInFlight, facts.DeletionsInFlight, facts.UpdatesInFlight, facts.Names, facts.Related = nil, nil, nil, nil, nil
	whole, _ := replicas.ScaleTo(slices.Concat(p.Active, p.Ended, p.Terminating), withFacts(p.spec, facts)) // the plan had no error
	wait := func(reason GateReason, name string, next time.Duration, holds bool) {
		if next = max(next, p.state.holds[holdKey{LookFailed, ""}].remaining(now, "")); next <= 0 {
			next = p.spread(LookFailed.row().shortest) // the context ended before the look, or too many lists were under way
		}
		if held = held || holds; holds {
			p.gate(reason, name, next, nil)
		} else {
			p.again(next)
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

// An unanswered is a child with a delete call or a change that had no answer.
type lostCall[C Object] struct {
	child C
	sent  time.Time
}

func (p *pass[O, C]) lostCalls() (children []lostCall[C]) {
	sent := p.state.known.UnansweredCalls()
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

// lookFor looks on the server for calls without an answer. If something is settled, the next pass comes at once.
// After an error, later looks are delayed.
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
		if f, ok = found[name]; ok {
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
	} else if ctx.Err() == nil && !errors.Is(failed, errListsBusy) {
		p.sendEventOnce(LookFailed, "Error looking for "+p.childResource.Resource+": "+failed.Error())
		p.holdCalls(LookFailed, "", "", failed)
	}
	return found
}

// settleName records what a look has found under the name of a creation without an answer.
func (p *pass[O, C]) settleName(l look[C], n ledger.Name, f finding[C], found findings[C], began time.Time) {
	known := p.state.known
	switch {
	case f.there:
		p.observeFound(l.start, f.child, n.Holder == ledger.Replica)
	case l.isList && p.isUnlisted(n.NamespacedName): // the list cannot contain this child, so the name may still be in use
		delete(found, n.NamespacedName)
	default:
		known.NameFree(n.NamespacedName)
		for _, c := range p.view.children {
			if nameOf(c) == n.NamespacedName { // the watch of the cache may be behind
				p.recordMissing(l, object.ID(c))
			}
		}
		if n.IsTaken() { // a creation with this name can be sent again
			p.again(1)
		}
	}
	// After ledger.MaxRequestAge, no creation can take effect, and the ledger drops the name.
	known.NameChecked(n.NamespacedName, began, p.opts.Now())
	if _, open := known.SentTo(n.Name); !open && !n.Sent.IsZero() {
		p.again(1)
	}
}

// settleChild records what a look has found of a child with a call that had no answer.
func (p *pass[O, C]) settleChild(l look[C], v lostCall[C], f finding[C], began time.Time) {
	known, id := p.state.known, object.ID(v.child)
	switch {
	case !f.there:
		p.recordMissing(l, id)
	case object.ID(f.child) != id:
		known.ObserveDeleted(l.start, id, p.opts.Now())
		p.observeFound(l.start, f.child, false)
	default:
		if !p.viewHas(f.child) { // the child has changed, and may have another owner
			p.believe(l.start, f.child)
			p.again(1)
		}
		if !p.leaves(f.child) && began.Sub(v.sent) < ledger.MaxRequestAge {
			return
		}
	}
	known.CallAnswered(id)
	p.again(1)
}

// findings are what a look has found under the names of calls without an answer.
type findings[C Object] map[types.NamespacedName]finding[C]

type finding[C Object] struct {
	start ledger.Moment
	child C
	there bool
}

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
	reads := filter(p.calls.inOrder(), func(c Call) bool { return c.Verb == "Get" })
	if len(reads)+n <= fewReads {
		return look[C]{start: start, find: p.readChild}
	}
	list, err := p.allLive(ctx, start)
	return look[C]{start, true, list.Version, func(_ context.Context, name types.NamespacedName) (found C, there bool, _ error) {
		return findNamed(list.Items, name, err)
	}}
}

// fewReads is the maximum number of children that a pass reads one by one. For a larger number of
// children, one list is cheaper.
const fewReads = 3

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
		p.state.known.ObserveMissing(l.start, id, l.version, p.opts.Now())
		return
	}
	p.state.known.ObserveDeleted(l.start, id, p.opts.Now())
}

// observeFound records an object that a look has found. The view contains it in another version, or not at all.
func (p *pass[O, C]) observeFound(start ledger.Moment, found C, isInView bool) {
	if !p.viewHas(found) && (isInView || (p.controls(found) || p.isOurs(found)) && p.rules.Active(found)) {
		p.believe(start, found)
	}
	p.recordName(found)
}

// recordName records in the ledger which object has a name.
func (p *pass[O, C]) recordName(c C) {
	holder, ours := p.snapshot.Rules.Holder(c)
	p.state.known.NameHeld(nameOf(c), object.ID(c), holder, ours)
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

// filter returns the elements of list for which f returns true.
func filter[E any](list []E, f func(E) bool) []E {
	return slices.DeleteFunc(slices.Clone(list), func(e E) bool { return !f(e) })
}
