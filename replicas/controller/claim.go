// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
)

// policyIsFinal is how long an adoption must fail with BadRequest or Forbidden before the failure counts as
// a refusal. The server may also return these errors for a short time while admission is starting.
const policyIsFinal = 5 * time.Minute

// claim adopts and releases the children that the plan names, and returns what to create and delete next.
// If the second result is false, the pass must create and delete nothing. If an orphan was not adopted, or
// if the plan contains both adoptions and deletions, claim computes a new scale from the owner's current
// children. If a claim fails, the claims that succeeded remain in effect (C13).
func (p *pass[O, C]) claim(ctx context.Context, plan replicas.Plan[C]) (scale replicas.Scale[C], ok bool) {
	claims, orphans, before := plan.Claims, plan.Claims.Adopt, p.state.aside
	p.state.aside = nil
	claims.Adopt, claims.Release = p.toTry(before, orphans), p.notUndone(p.toTry(before, claims.Release))
	if len(orphans)+len(claims.Release) == 0 && ctx.Err() == nil { // the usual case
		return plan.Scale, true
	}
	claimer := p.claimer()
	claimed, err := claimer.Apply(ctx, claims)
	p.fails(err)
	p.Adopted, p.Released = claimed.Adopted, claimed.Released
	p.Active = slices.Concat(claims.Owned, p.activeOf(claimed.Adopted))
	p.Failed += len(claimed.AdoptionPending) + len(claimed.NotReleased)
	if ctx.Err() == nil { // if the context has ended, failed releases are not reported
		p.failedReleases(before, claimed.NotReleased)
	}
	if claimed.CanAdoptErr != nil || ctx.Err() != nil {
		for id, a := range before { // the pass has learned nothing new about the orphans
			if p.state.aside[id] == nil {
				p.keepAside(id, a)
			}
		}
		why := cmp.Or(claimed.CanAdoptErr, context.Cause(ctx))
		if p.ownerOld {
			p.waitForOwner().Err = why
		} else {
			_ = p.unread(ctx, stopsAll, why) // Apply has returned the error
		}
		return scale, false
	}
	p.undecidedAdoptions(ctx, claimer, before, append(claimed.AdoptionPending, p.refusedAdoptions(claimed.Refused)...))
	p.invalidReleases(claims.Release)
	p.noteReleases(claims.Release)
	p.sortAside(orphans)
	asPlanned := len(p.Active) == len(claims.Owned)+len(orphans)
	if plan.Blocked.Reason != "" || len(orphans) == 0 || asPlanned && len(plan.Scale.Delete) == 0 {
		return plan.Scale, true
	}
	p.holdPlaces(len(p.AdoptionPending))
	return p.scaleClaimed(ctx)
}

// scaleClaimed decides what to create and delete, on the basis of the owner's children after the claims. If
// the view is old and there is something to do, scaleClaimed lists the children live and decides again.
func (p *pass[O, C]) scaleClaimed(ctx context.Context) (replicas.Scale[C], bool) {
	spec := p.view.spec
	spec.Pending = pending[trusted]
	scale, err := replicas.ScaleTo(p.activeAndEnded(), spec)
	if err == nil && !scale.IsZero() && p.view.is == stale {
		if !p.readLive(ctx) {
			return scale, false
		}
		p.claimedLive()
		scale, err = replicas.ScaleTo(p.activeAndEnded(), p.view.spec)
	}
	p.fails(err)
	return scale, err == nil
}

// claimedLive sets Active and Terminating from a live list that was made after the claims.
func (p *pass[O, C]) claimedLive() {
	p.Terminating, p.Active = p.terminating(), nil
	undecided := 0
	for _, c := range p.activeOf(p.view.children) {
		a := p.state.aside[object.ID(c)]
		switch {
		case !p.snapshot.Rules.MayCount(c): // a child that was or will be released
		case p.controls(c):
			p.Active = append(p.Active, c)
		case a == nil || a.Reason == AdoptionUndecided: // an orphan that the owner may still adopt
			undecided++
		}
	}
	p.holdPlaces(undecided)
}

// holdPlaces increases Spec.PendingAdoptions by the number of orphans that may still be adopted. No children
// are then created in place of these orphans. If the sum overflows, PendingAdoptions keeps the value that the
// Kind has set.
func (p *pass[O, C]) holdPlaces(undecided int) {
	p.view.spec.PendingAdoptions = max(p.spec.PendingAdoptions, p.spec.PendingAdoptions+undecided)
}

// claimer returns a Claimer that sends its patches in parallel. Before the first adoption, the Claimer
// reads the owner from the server.
func (p *pass[O, C]) claimer() selector.Claimer[C] {
	owner, start := p.Owner, p.state.known.Start()
	return selector.Claimer[C]{
		Owner: owner, Kind: p.kind.Owner, Selector: p.spec.Selector,
		PatchType: p.patchType,
		Patch: func(ctx context.Context, child C, patch selector.Patch) (C, error) {
			return p.askPatch(ctx, start, child, patch)
		},
		CanAdopt: selector.CanAdopt(func(ctx context.Context) (metav1.Object, error) {
			return p.readOwner(ctx)
		}, owner),
		Run: func(ctx context.Context, n int, call func(context.Context, int) error) error {
			return summarize(slowstart.Run(ctx, n, p.allAtOnce(n), call))
		},
	}
}

// toTry returns the children to adopt or release in this pass. If the last adoption or release of a child
// failed, toTry omits the child until a delay is over. The delay ends early if the child changes, or if the
// owner has a new generation. When a child no longer needs to be adopted or released, its failure is
// forgotten.
func (p *pass[O, C]) toTry(before map[types.UID]*aside, children []C) []C {
	if len(before) == 0 {
		return children
	}
	return slices.DeleteFunc(slices.Clone(children), func(c C) bool {
		was := before[object.ID(c)]
		if was == nil || was.Version != c.GetResourceVersion() || was.Hold.Remaining(p.Now) <= 0 {
			return false
		}
		p.setAside(c, was, nil)
		return true
	})
}

// mostReleases limits how often the Controller releases a child that another controller keeps giving back
// to the owner.
const mostReleases = 3

var errUndone = errors.New("another controller, with another selector, has adopted it for this owner: use one controller.Kind for each pair of owner kind and child kind")

// A release records how often a child was released, and the child's resourceVersion before the last
// release.
type release struct {
	times   int
	version string
}

// notUndone omits the children that were released mostReleases times and belong to the owner again. Another
// controller has given the omitted children back to the owner after each release, so one more release would
// not last.
func (p *pass[O, C]) notUndone(release []C) []C {
	if len(p.state.released) == 0 {
		return release
	}
	return filter(release, func(c C) bool {
		was := p.state.released[object.ID(c)]
		isUndone := was.times >= mostReleases && was.version != c.GetResourceVersion() // if equal, the cache does not show the release
		if isUndone {
			p.sendEventOnce(ReleaseUndone, "Not releasing "+c.GetName()+" again: "+errUndone.Error())
			p.gate(ReleaseUndone, c.GetName(), 0, errUndone)
		}
		return !isUndone
	})
}

// noteReleases counts how often each child was released. The count is dropped when this pass adopts the
// child, or when the view no longer contains the child.
func (p *pass[O, C]) noteReleases(released []C) {
	before := p.state.released
	p.state.released = map[types.UID]release{}
	for _, c := range p.view.children {
		if was, is := before[object.ID(c)]; is {
			p.state.released[object.ID(c)] = was
		}
	}
	for _, c := range released {
		if id := object.ID(c); p.state.aside[id] == nil { // the release did not fail
			p.state.released[id] = release{before[id].times + 1, c.GetResourceVersion()}
		}
	}
	for _, c := range p.Adopted {
		delete(p.state.released, object.ID(c))
	}
}

// refusedAdoptions postpones the adoptions that the server has refused, and returns those of children that
// this process has created.
func (p *pass[O, C]) refusedAdoptions(refused []selector.Failure[C]) (made []selector.Failure[C]) {
	for _, f := range refused {
		if p.isMade(f.Object) {
			made = append(made, f)
			continue
		}
		p.refuseAdoption(f.Object, time.Time{}, f.Err)
	}
	return made
}

// isMade reports whether this process has created a child. Such a child keeps its place, whatever the server
// answers to its adoption. Otherwise a webhook that takes the owner from each new child would cause creations
// without end.
func (p *pass[O, C]) isMade(c C) bool { return p.state.known.Made(nameOf(c)) }

// refuseAdoption is called after the server has refused an adoption, and postpones the next attempt. If a
// single answer of the server was a refusal, the second argument is the zero time. If repeated failures
// count as a refusal, the second argument is the time of the first failure. If a policy then causes the next
// failure, too, this failure counts as a refusal immediately.
func (p *pass[O, C]) refuseAdoption(c C, first time.Time, why error) {
	hold := backoff.Hold{Since: p.opts.Now(), Wait: AdoptionRefused.row().shortest}
	p.setAside(c, &aside{Version: c.GetResourceVersion(), First: first, Hold: hold, Reason: AdoptionRefused, Why: why}, nil)
}

// undecidedAdoptions handles adoptions that failed but may still succeed. The next attempt is delayed, and
// the delay doubles with each failure. If a policy is the cause, and the adoption has failed for at least the
// time policyIsFinal, the last failure counts as a refusal.
func (p *pass[O, C]) undecidedAdoptions(ctx context.Context, claimer selector.Claimer[C], before map[types.UID]*aside, failed []selector.Failure[C]) {
	isFinal := sync.OnceValue(func() bool { return p.policyIsAgainstIt(ctx, claimer) })
	for _, f := range failed {
		a := aside{First: p.Now}
		if was := before[object.ID(f.Object)]; was != nil && !was.First.IsZero() {
			a = *was
		}
		a.Version, a.Reason = f.Object.GetResourceVersion(), AdoptionUndecided
		if p.Now.Sub(a.First) >= policyIsFinal && isPolicy(f.Err) && !p.isMade(f.Object) && isFinal() {
			p.refuseAdoption(f.Object, a.First, f.Err)
			continue
		}
		f.Err = p.explained(f.Err, f.Object)
		AdoptionUndecided.grow(&a.Hold, p.opts.Now())
		a.Hold.Wait = max(a.Hold.Wait, serverDelay([]error{f.Err}))
		p.sendEventOnce(AdoptionUndecided, "Error adopting "+f.Object.GetName()+": "+f.Err.Error())
		p.setAside(f.Object, &a, f.Err)
	}
}

func isPolicy(err error) bool { return apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) }

// policyIsAgainstIt reports whether a policy probably forbids the adoptions that failed. It sends a dry run
// of an adoption patch for a child that the owner already has. If the dry run succeeds, the Controller has
// the right to patch children and admission works. In this case, only the adoption of the orphans is
// forbidden.
func (p *pass[O, C]) policyIsAgainstIt(ctx context.Context, claimer selector.Claimer[C]) bool {
	if len(p.Active) == 0 {
		return false
	}
	patch, err := claimer.AdoptPatch(p.Active[0])
	if err != nil {
		return false
	}
	_, err = p.sendPatch(ctx, p.Active[0], patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err == nil
}

// setAside is called if the last attempt to adopt or release a child failed, and postpones the next
// attempt. The last argument is the error of an attempt in this pass. If there was no attempt, or if a.Why
// already contains the error, the last argument is nil.
func (p *pass[O, C]) setAside(c C, a *aside, why error) {
	p.keepAside(object.ID(c), a)
	a.Why = cmp.Or(why, a.Why)
	p.gate(a.Reason, c.GetName(), max(a.Hold.Remaining(p.opts.Now()), 1), why).Err = a.Why
}

func (p *pass[O, C]) keepAside(id types.UID, a *aside) {
	if p.state.aside == nil {
		p.state.aside = map[types.UID]*aside{}
	}
	p.state.aside[id] = a
}

// sortAside fills AdoptionPending and AdoptionRejected with the orphans whose adoption failed in this pass
// or in an earlier one.
func (p *pass[O, C]) sortAside(orphans []C) {
	for _, c := range orphans {
		switch a := p.state.aside[object.ID(c)]; {
		case a == nil:
		case a.Reason == AdoptionUndecided:
			p.AdoptionPending = append(p.AdoptionPending, c)
		default:
			p.AdoptionRejected = append(p.AdoptionRejected, c)
		}
	}
}

// invalidReleases handles releases that the server rejected as Invalid. If the server rejects the release of
// a child as Invalid, the Claimer counts the child as released. However, a policy may have forbidden the
// release. Therefore invalidReleases delays the next attempt to release the child.
func (p *pass[O, C]) invalidReleases(released []C) {
	if len(released) == 0 {
		return
	}
	invalid := map[types.NamespacedName]error{}
	for _, call := range p.calls.inOrder() {
		if call.Verb == "Patch" && apierrors.IsInvalid(call.Err) {
			invalid[types.NamespacedName{Namespace: call.Namespace, Name: call.Name}] = call.Err
		}
	}
	for _, c := range released {
		if err := invalid[nameOf(c)]; err != nil {
			p.setAside(c, &aside{Version: c.GetResourceVersion(), Reason: ReleaseFailed, Hold: backoff.Hold{Since: p.opts.Now(), Wait: ReleaseFailed.row().longest}}, err)
		}
	}
}

// failedReleases sends events about failed releases, and delays the next attempt. The delay doubles with
// each failure. Creations and deletions do not wait for failed releases.
func (p *pass[O, C]) failedReleases(before map[types.UID]*aside, failed []selector.Failure[C]) {
	for _, f := range failed {
		p.sendEventOnce(ReleaseFailed, "Error releasing "+f.Object.GetName()+": "+f.Err.Error())
		a := aside{}
		if was := before[object.ID(f.Object)]; was != nil {
			a = *was
		}
		a.Version, a.Reason = f.Object.GetResourceVersion(), ReleaseFailed
		ReleaseFailed.grow(&a.Hold, p.opts.Now())
		a.Hold.Wait = max(a.Hold.Wait, serverDelay([]error{f.Err}))
		p.setAside(f.Object, &a, f.Err)
	}
}
