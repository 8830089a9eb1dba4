// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
)

// claim adopts and releases the children that the plan names, and returns what to do after that. A claim that fails stops
// neither the other claims (C13) nor the rest of the pass, unless the owner could not be checked (ok is false).
func (p *pass[O, C]) claim(ctx context.Context, plan replicas.Plan[C]) (scale replicas.Scale[C], ok bool) {
	claims, orphans := plan.Claims, plan.Claims.Adopt
	p.forgetClaims(claims)
	claims.Adopt = p.claimsNotHeld(orphans, AdoptionUndecided, AdoptionRefused)
	claims.Release = p.claimsNotHeld(claims.Release, ReleaseFailed)
	if len(orphans)+len(claims.Release) == 0 && ctx.Err() == nil { // the usual case
		return plan.Scale, true
	}
	claimer := p.claimer()
	claimed, err := claimer.Apply(ctx, claims)
	p.addError(err)
	p.Adopted, p.Released = claimed.Adopted, claimed.Released
	// An adopted child counts as the answer shows it. It may be on its way out, and in the version from before its
	// adoption it could be neither deleted nor changed.
	p.Active = slices.Concat(claims.Owned, p.activeOf(claimed.Adopted))
	p.Failed += len(claimed.AdoptionPending) + len(claimed.NotReleased)
	if ctx.Err() == nil { // if the context has ended, failed releases are not reported
		p.holdReleases(claims.Release, claimed)
	}
	if claimed.CanAdoptErr != nil || ctx.Err() != nil {
		// The owner is gone, or is being deleted, and the cache does not show it yet. The garbage collector would delete
		// all that is created for it. If the owner could not be read, that may be so, too.
		why := cmp.Or(claimed.CanAdoptErr, context.Cause(ctx))
		if p.ownerOld {
			p.waitForOwner().Err = why
		} else {
			_ = p.unread(ctx, stopsAll, why) // Apply has returned the error
		}
		return scale, false
	}
	p.failedAdoptions(ctx, claimer, claimed)
	// The plan counted on all adoptions, and its deletions carry the versions from before them. A plan that only creates
	// may stay as it is if all have succeeded.
	asPlanned := len(p.Active) == len(claims.Owned)+len(orphans)
	if plan.Blocked.Reason != "" || len(orphans) == 0 || asPlanned && !deletesOrChanges(plan.Scale) {
		return plan.Scale, true
	}
	// The adoption of orphan-a timed out and may have taken effect. A pod in its place would then be one too many.
	p.facts.Undecided = filter(orphans, func(c C) bool { return p.claimHold(AdoptionUndecided, c) != nil })
	return p.scaleClaimed(ctx)
}

// forgetClaims ends the holds of children that the plan neither adopts nor releases.
func (p *pass[O, C]) forgetClaims(claims selector.Claims[C]) {
	if len(p.state.holds) == 0 {
		return
	}
	left := sets.New[string]()
	for _, c := range slices.Concat(claims.Adopt, claims.Release) {
		left.Insert(string(object.ID(c)))
	}
	maps.DeleteFunc(p.state.holds, func(k holdKey, h *hold) bool {
		switch k.Reason {
		case AdoptionUndecided, AdoptionRefused:
			return !left.Has(k.Key)
		case ReleaseFailed: // another controller may adopt the child again; see holdReleases
			return !left.Has(k.Key) && h.Remaining(p.Now) < -h.Wait
		}
		return false
	})
}

// claimsNotHeld returns the children whose claim no hold delays, or which have changed since.
func (p *pass[O, C]) claimsNotHeld(children []C, reasons ...GateReason) []C {
	if len(p.state.holds) == 0 {
		return children
	}
	return filter(children, func(c C) bool {
		return !slices.ContainsFunc(reasons, func(r GateReason) bool {
			return p.held(r, string(object.ID(c)), c.GetName(), c.GetResourceVersion())
		})
	})
}

func (p *pass[O, C]) claimHold(reason GateReason, c C) *hold {
	return p.state.holds[holdKey{reason, string(object.ID(c))}]
}

func (p *pass[O, C]) claimer() selector.Claimer[C] {
	owner, start := p.Owner, p.state.ledger.Start()
	return selector.Claimer[C]{
		Owner: owner, Kind: p.kind.Owner, Selector: p.spec.Selector,
		PatchType: p.patchType,
		Patch: func(ctx context.Context, child C, patch selector.Patch) (C, error) {
			return p.askPatch(ctx, start, child, patch)
		},
		// The owner is deleted, and the cache does not show it yet. If it adopted orphans now, the garbage collector would
		// delete them with it. So it is read from the server before the first adoption.
		CanAdopt: selector.CanAdopt(func(ctx context.Context) (metav1.Object, error) {
			return p.readOwner(ctx)
		}, owner),
		Run: func(ctx context.Context, n int, call func(context.Context, int) error) error {
			run := slowstart.Run(ctx, n, p.allAtOnce(n), call)
			var errs []error
			for _, f := range run.Failed {
				errs = append(errs, f.Err)
			}
			return joined.Summary(run.Err, errs)
		},
	}
}

// failedAdoptions holds the adoptions that failed. Some of them are undecided, and others are refused.
func (p *pass[O, C]) failedAdoptions(ctx context.Context, claimer selector.Claimer[C], claimed selector.Claimed[C]) {
	isFinal := sync.OnceValue(func() bool { return p.policyIsAgainstIt(ctx, claimer) })
	for _, c := range claimed.Adopted {
		p.state.holds.end(string(object.ID(c)), AdoptionUndecided, AdoptionRefused, ReleaseFailed)
	}
	for _, f := range claimed.Gone {
		p.state.holds.end(string(object.ID(f.Object)), AdoptionUndecided, AdoptionRefused)
	}
	undecided := claimed.AdoptionPending
	for _, f := range claimed.Refused {
		if p.createdHere(f.Object) {
			// A webhook takes the owner from each new child and refuses its adoption. A child created in its place would
			// fare the same, without end. So each one keeps its place.
			undecided = append(undecided, f)
			continue
		}
		p.state.holds.end(string(object.ID(f.Object)), AdoptionUndecided)
		p.holdClaim(AdoptionRefused, f, time.Time{})
	}
	for _, f := range undecided {
		first, key := p.Now, string(object.ID(f.Object)) // unless an earlier pass has met the first failure
		for _, reason := range []GateReason{AdoptionUndecided, AdoptionRefused} {
			if h := p.claimHold(reason, f.Object); h != nil && !h.first.IsZero() {
				first = h.first
			}
		}
		p.state.holds.end(key, AdoptionRefused)
		// Forbidden for five minutes is no admission that is still starting. If the same patch works for a child that the
		// owner has, a policy bars this orphan, and its place is given up.
		if p.Now.Sub(first) >= policyIsFinal && (apierrors.IsBadRequest(f.Err) || apierrors.IsForbidden(f.Err)) && !p.createdHere(f.Object) && isFinal() {
			p.state.holds.end(key, AdoptionUndecided)
			p.holdClaim(AdoptionRefused, f, first)
			continue
		}
		f.Err = p.explained(f.Err, f.Object)
		p.sendEventOnce(AdoptionUndecided, "Error adopting "+f.Object.GetName()+": "+f.Err.Error())
		p.holdClaim(AdoptionUndecided, f, first)
	}
}

// policyIsFinal is how long an adoption must fail with BadRequest or Forbidden to count as refused, because the server
// may also return these errors while admission is starting.
const policyIsFinal = 5 * time.Minute

// policyIsAgainstIt reports whether a policy probably forbids the adoptions that failed.
func (p *pass[O, C]) policyIsAgainstIt(ctx context.Context, claimer selector.Claimer[C]) bool {
	if len(p.Active) == 0 { // no child is left to try it with
		return false
	}
	patch, err := claimer.AdoptPatch(p.Active[0])
	if err != nil {
		return false
	}
	// If the dry run succeeds, the Controller may patch children and admission works, so only the orphans are barred.
	_, err = p.sendPatch(ctx, p.Active[0], patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err == nil
}

func (p *pass[O, C]) createdHere(c C) bool { return p.state.ledger.WasSent(nameOf(c)) }

// holdClaim holds the claim of a child, which first failed at the given time.
func (p *pass[O, C]) holdClaim(reason GateReason, f selector.Failure[C], first time.Time) {
	h := p.holdCalls(reason, string(object.ID(f.Object)), f.Object.GetName(), f.Err)
	h.version, h.first = f.Object.GetResourceVersion(), first
}

// holdReleases holds the next release of each child, and sends events about those that failed. Nothing else waits.
func (p *pass[O, C]) holdReleases(tried []C, claimed selector.Claimed[C]) {
	for _, f := range claimed.NotReleased {
		p.sendEventOnce(ReleaseFailed, "Error releasing "+f.Object.GetName()+": "+f.Err.Error())
		p.holdClaim(ReleaseFailed, f, p.Now)
	}
	// A Claimer counts a child as released if the patch was Invalid, as Kubernetes does. But a policy may have
	// refused it, and would be asked again at each event.
	invalid := map[types.NamespacedName]error{}
	for _, call := range p.calls.inOrder() {
		if call.Verb == "Patch" && apierrors.IsInvalid(call.Err) {
			invalid[types.NamespacedName{Namespace: call.Namespace, Name: call.Name}] = call.Err
		}
	}
	for _, c := range tried {
		if err := invalid[nameOf(c)]; err != nil {
			p.holdClaim(ReleaseFailed, selector.Failure[C]{Object: c, Err: err}, p.Now)
		}
	}
	// Two controllers had Kinds for two groups of one owner's pods (kuberay 1739). Each released the pods of the other
	// group, and the other one adopted them again, thousands of times.
	for _, c := range claimed.Released {
		if invalid[nameOf(c)] != nil {
			continue
		}
		if h := p.claimHold(ReleaseFailed, c); h != nil && errors.Is(h.why, errReleaseUndone) {
			p.event(corev1.EventTypeWarning, FailedRelease, "Released "+c.GetName()+" again: "+errReleaseUndone.Error())
		}
		h := p.state.holds.getOrAdd(ReleaseFailed, string(object.ID(c)))
		ReleaseFailed.grow(&h.Hold, p.opts.Now())
		*h = hold{Hold: h.Hold, why: errReleaseUndone}
	}
}

var errReleaseUndone = errors.New("another controller, with another selector, has adopted it for this owner: use one controller.Kind for each pair of owner kind and child kind")

// scaleClaimed plans once more what to create and delete, with the children as the claims have left them.
func (p *pass[O, C]) scaleClaimed(ctx context.Context) (replicas.Scale[C], bool) {
	facts := p.facts
	facts.Pending = pending[trusted]
	scale, err := replicas.ScaleTo(slices.Concat(p.Active, p.Ended, p.Terminating), withFacts(p.spec, facts))
	if err == nil && !scale.IsZero() && p.view.state == stale {
		// An orphan was refused, and the cache has been behind for minutes. Its place may be filled already, by a pod that
		// only a live list shows.
		if !p.readLive(ctx) {
			return scale, false
		}
		p.claimedLive()
		facts = p.facts
		scale, err = replicas.ScaleTo(slices.Concat(p.Active, p.Ended, p.Terminating), withFacts(p.spec, facts))
	}
	p.own = ownPlan[C]{slices.Concat(p.Active, p.Ended, p.Terminating), facts, replicas.Plan[C]{Scale: scale}}
	p.addError(err)
	return scale, err == nil
}

// claimedLive sets Active, Ended and Terminating by a live list that was made after the claims.
func (p *pass[O, C]) claimedLive() {
	p.Terminating, p.Ended, p.Active, p.facts.Undecided = p.terminating(), p.ended(), nil, nil
	for _, c := range p.activeOf(p.view.children) {
		switch {
		case !p.snapshot.Rules.MayCount(c):
			// web-x does not match and could not be released. If it counted, a child that matches would go in its place.
		case p.controls(c):
			p.Active = append(p.Active, c)
		case p.claimHold(AdoptionRefused, c) == nil: // an orphan that the owner may still adopt
			p.facts.Undecided = append(p.facts.Undecided, c)
		}
	}
}

// isOurs reports whether a new child is the owner's, or is an orphan that the next pass adopts.
func (p *pass[O, C]) isOurs(c C) bool {
	// A webhook removes the owner references of each new pod, but not the labels. If such pods were strays, they would be
	// deleted, and there would be none as long as the webhook lives. The answer of a fake client may have no UID.
	return c.GetUID() == "" || !p.isAnothers(c) && (p.controls(c) || !p.spec.NoAdoption) && p.spec.Selector.Matches(labels.Set(c.GetLabels()))
}

// isAnothers reports whether a child has a controller other than the owner.
func (p *pass[O, C]) isAnothers(c C) bool {
	return metav1.GetControllerOfNoCopy(c) != nil && !p.controls(c)
}

// isStray reports whether a child does not match the owner's selector and has no other controller.
func (p *pass[O, C]) isStray(c C) bool {
	return !p.isOurs(c) && !p.isAnothers(c)
}
