// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
)

// updates holds the state of the step of a pass that changes children.
type updates[O, C Object] struct {
	*pass[O, C]
	each   []*sentChange[C] // one is nil if slow start did not try it
	result slowstart.Result
}

// A sentChange is one change, with the answer to its patch.
type sentChange[C Object] struct {
	replicas.Change[C]
	patched C
	err     error
}

// mustReplace adds to the rules that children must go whose change the server refused; see Change.OrReplace.
func (p *pass[O, C]) mustReplace(spec *replicas.Spec[C]) {
	refused, mustGo := p.state.replace, spec.Rules.MustGo
	if len(refused) == 0 || spec.Update == nil {
		return
	}
	groups, groupOf, update := groupsIn(*spec), spec.GroupOf, spec.Update
	// A group has left the spec, and its template is gone with it. Update cannot be asked about its children.
	isListed := func(c C) bool {
		return groupOf == nil || slices.ContainsFunc(groups, func(g replicas.Group[C]) bool { return g.Name == groupOf(c) })
	}
	spec.Rules.MustGo = func(c C) bool { // unless it has become what it should be
		return refused.Has(object.ID(c)) && isListed(c) && !neededChange(update, c).IsZero() || mustGo != nil && mustGo(c)
	}
}

func neededChange[C Object](update func(C) replicas.Change[C], child C) replicas.Change[C] {
	change := update(child)
	change.Object = child
	return change
}

func (p *pass[O, C]) updatesNotHeld(changes []replicas.Change[C]) []replicas.Change[C] {
	if len(p.state.holds) == 0 || len(changes) == 0 {
		return changes
	}
	if p.held(UpdateFailed, "", "", "") {
		return nil
	}
	return filter(changes, func(c replicas.Change[C]) bool {
		name := c.Object.GetName()
		return !p.held(UpdateFailed, name, name, c.Object.GetResourceVersion())
	})
}

// patchesIn returns the patches of a plan, to compare it with another plan.
func patchesIn[C Object](scale replicas.Scale[C]) (patches []selector.Patch) {
	changes := slices.Clone(scale.Update)
	for _, v := range scale.Delete {
		if v.Mark != nil {
			changes = append(changes, *v.Mark)
		}
	}
	for _, c := range changes {
		patch, _ := c.Patch() // one that cannot be encoded fails when it is sent
		patches = append(patches, patch)
	}
	return patches
}

// update changes children with slow start, because a change that is refused for one is usually refused for all.
func (p *pass[O, C]) update(ctx context.Context, changes []replicas.Change[C]) *updates[O, C] {
	u := &updates[O, C]{pass: p, each: make([]*sentChange[C], len(changes))}
	u.result = slowstart.Run(ctx, len(changes), slowstart.Options{MaxParallel: p.opts.MaxParallel}, func(ctx context.Context, i int) error {
		e := &sentChange[C]{Change: changes[i], err: errNoAnswer} // the client may panic
		u.each[i] = e
		e.patched, e.err = p.askUpdate(ctx, &e.Change)
		if e.err == nil && !e.Free || e.err == nil && e.Recall {
			p.sendUpdateEvent(e.Change)
		}
		if apierrors.IsConflict(e.err) || isGone(e.Change, e.err) || errors.Is(e.err, errNotAsShown) {
			return nil // says nothing about the other children, so slow start goes on
		}
		return e.err
	})
	return u
}

// errNotAsShown is the error of a change that was not sent, because the child is not as the plan has seen it.
var errNotAsShown = errors.New("the child has changed")

// errChangeUndone is the error of a change that has not stayed.
var errChangeUndone = errors.New("the server accepted the change, and the child needs it again: a webhook, a default or another client undoes it, or the cache drops what Update compares")

// fromLive makes a change again from the child on the server.
func (p *pass[O, C]) fromLive(ctx context.Context, start ledger.Moment, c *replicas.Change[C], remake func(live C) replicas.Change[C]) error {
	live, there, err := p.readChild(ctx, nameOf(c.Object))
	switch {
	case err != nil:
		return err
	case !there || object.ID(live) != object.ID(c.Object):
		p.state.ledger.ObserveDeleted(start, object.ID(c.Object), p.opts.Now())
		return errNotAsShown
	case live.GetResourceVersion() != c.Object.GetResourceVersion():
		// The plan judged web-a unready, which costs no budget. Meanwhile it may be ready, so the next pass judges it anew.
		p.observe(start, live)
		return errNotAsShown
	}
	change := remake(live)
	change.Object, change.Recall = live, c.Recall
	if change.IsZero() || c.Free && !change.Free {
		// The cache drops a field that Update compares, so each plan finds a change that the child does not need. Or the
		// change is not Free once the field is there, and the plan has left no budget for this child.
		return errChangeUndone
	}
	*c = change
	return nil
}

func (p *pass[O, C]) sendUpdateEvent(c replicas.Change[C]) {
	if c.Recall {
		p.event(corev1.EventTypeNormal, SuccessfulRecall, "Recalled "+p.childNoun()+": "+c.Object.GetName())
		return
	}
	p.event(corev1.EventTypeNormal, SuccessfulUpdate, "Updated "+p.childNoun()+": "+c.Object.GetName())
}

// conclude decides what became of the changes without an answer, and reports the errors.
func (u *updates[O, C]) conclude(found findings[C]) {
	if u == nil {
		return
	}
	var failures []error
	for _, e := range u.each {
		if e == nil {
			continue
		}
		// The answer was lost. The look has found web-a with the change, so nothing has failed.
		if f := found[nameOf(e.Object)]; f.there && hadNoAnswer(e.err) && object.ID(f.child) == object.ID(e.Object) && u.isDone(e.Change, f.child) {
			e.patched, e.err = f.child, nil
		}
		if err := u.concludeOne(e); err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) == 0 && u.result.Skipped > 0 { // the context has ended
		failures = []error{u.result.Err}
	}
	if len(failures) > 0 {
		u.addError(u.failure("unable to update %s: %w", u.childResource.Resource, joined.Summary(joined.Errors(failures), failures)))
	}
}

// concludeOne decides what follows from the answer, and returns what of it is an error of the pass.
func (u *updates[O, C]) concludeOne(e *sentChange[C]) error {
	name := e.Object.GetName()
	switch {
	case e.err == nil && !u.isDone(e.Change, e.patched):
		e.err = errChangeUndone // by a webhook, which is as good as a refusal
	case e.err == nil:
		if e.Recall {
			u.Recalled = append(u.Recalled, e.patched)
		} else {
			u.Changed = append(u.Changed, e.patched)
		}
		u.state.holds.end("", UpdateFailed)
		u.holdRepeated(name)
		return nil
	case isGone(e.Change, e.err), errors.Is(e.err, errNotAsShown):
		u.requeueAfter(1) // the ledger has what was found
		return nil
	case apierrors.IsConflict(e.err):
		// The kubelet has written to web-a since the cache showed it. A second try would need a read, but the event of that
		// write brings a pass in which the cache has it.
		u.holdUpdates(name, e.err, 50*time.Millisecond, time.Minute).version = e.Object.GetResourceVersion()
		return nil
	case apierrors.IsInvalid(e.err) && e.OrReplace && !e.Recall: // never accepted, so the next pass replaces the child
		if u.state.replace == nil {
			u.state.replace = sets.New[types.UID]()
		}
		u.state.replace.Insert(object.ID(e.Object))
		u.requeueAfter(1)
		return nil
	}
	u.Failed++
	u.event(corev1.EventTypeWarning, FailedUpdate, "Error updating "+name+": "+e.err.Error())
	switch {
	case apierrors.IsInternalError(e.err) || serverDelay([]error{e.err}) > 0: // no other change would fare better
		u.holdUpdates("", e.err, time.Second, time.Minute)
	case isRefusal(e.err) || apierrors.IsNotFound(e.err) || errors.Is(e.err, errChangeUndone):
		// A webhook took the annotation off again each time, and each event of the pod brought the next patch. So unlike
		// after a Conflict, a newer version of the child does not end the hold.
		u.holdUpdates(name, e.err, time.Minute, 5*time.Minute)
	default: // no answer; each event of the child would send the change again
		u.holdUpdates(name, e.err, time.Second, time.Minute)
	}
	return e.err
}

// isDone reports whether a child no longer needs a change.
func (u *updates[O, C]) isDone(c replicas.Change[C], child C) bool {
	if c.Recall {
		return !u.leaves(child)
	}
	// A change has all that a child needs in one subresource. So if the child needs more there, this was taken back, but
	// a change of another subresource is the next one.
	next := neededChange(u.spec.Update, child)
	return next.IsZero() || next.Subresource != c.Subresource
}

// holdUpdates holds the change of a child, or all changes if key is empty.
func (p *pass[O, C]) holdUpdates(key string, why error, shortest, longest time.Duration) *hold {
	h := p.state.holds.getOrAdd(UpdateFailed, key)
	if h.Since.Before(p.Now) { // once in a pass, although many changes may have met the same 500
		h.Double(p.opts.Now(), shortest, longest)
	}
	h.Wait, h.why, h.version = max(h.Wait, serverDelay([]error{why})), why, ""
	p.gate(UpdateFailed, key, h.Wait, why)
	return h
}

// holdRepeated holds the next change or mark of a child that was changed or marked not long ago.
func (p *pass[O, C]) holdRepeated(name string) {
	// A second client wrote its own value each second, and after each of its writes the child needed the same change.
	h, now := p.state.holds.getOrAdd(UpdateFailed, name), p.opts.Now()
	if h.Remaining(now) < -changesApart {
		*h = hold{Hold: backoff.Hold{Since: now}} // of no length, which the second change lengthens, so the third waits
		return
	}
	h.Double(now, time.Second, 5*time.Minute)
	h.why, h.version = errChangeUndone, ""
}

// changesApart is how long a child must be left as it is, so that its next change is a new one.
const changesApart = 10 * time.Minute
