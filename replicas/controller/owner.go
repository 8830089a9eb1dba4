// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// wants finds the owner and its Spec, and reports whether the pass continues.
func (p *pass[O, C]) wants(ctx context.Context) bool {
	p.owners.awaitWrite(p.Name) // before the cache is read, because the cache may change meanwhile
	stale, ready := p.writes.Ready(expectations.Key{NamespacedName: p.Name})
	if !ready && p.owners.isKnownOld(p.Name) {
		stale, ready = expectations.Stale{}, true
	}
	if !ready {
		p.Stale = stale
		p.gate(OwnWriteNotSeen, stale.Resource.String(), stale.RetryAfter, nil)
		return false
	}
	owner, err := p.cache.Owner(ctx, p.Name)
	switch {
	case apierrors.IsNotFound(err):
		p.step = scales // nothing holds back an owner that is gone
		p.forget(expectations.Key{NamespacedName: p.Name})
		if next := p.owners.sweep(p.Name, p.Now); next > 0 {
			p.comeBack(next)
		}
		return false
	case err != nil:
		err = fmt.Errorf("controller: %s %q: reading it: %w", p.kind.Owner.Kind, p.Name, err)
	case object.IsNil(owner):
		err = fmt.Errorf("controller: %s %q: the cache returned nil", p.kind.Owner.Kind, p.Name)
	default:
		err = p.checkScope(owner)
	}
	if err != nil {
		p.fails(err)
		return false
	}
	p.Owner, p.cached, p.key = owner, owner, expectations.KeyOf(owner)
	p.state = p.owners.get(p.key)
	owner, ok := p.upToDate(ctx, owner)
	if !ok {
		return false
	}
	p.Owner, p.state = owner, p.stateOf(owner, p.Now)
	p.state.wrote.read(owner.GetResourceVersion())
	if stale != (expectations.Stale{}) {
		p.state.known.Distrust()
	}
	p.Generation = owner.GetGeneration()
	if p.spec, err = p.kind.Spec(owner); err != nil {
		err = p.refuseSpec(err)
		p.gate(SpecRefused, "", 0, err)
		p.fails(err)
		return false
	}
	p.spec.Owner, p.spec.Kind, p.spec.Now = owner, p.kind.Owner, p.Now
	p.spec.Replicas = p.spec.Wanted()
	p.rememberReadiness()
	p.rules, p.Desired = counting(p.spec.Rules), p.spec.Replicas
	p.deletePendingStrays(ctx)
	return true
}

// rememberReadiness completes the rules that need the time since which a child has been ready, or not
// ready. Pods have that time in their Ready condition, unless the Kind has its own Ready rule.
func (p *pass[O, C]) rememberReadiness() {
	if _, arePods := any(*new(C)).(*corev1.Pod); arePods && p.spec.Rules.Ready == nil {
		return
	}
	rules, minReady := p.spec.Rules.Complete(), time.Duration(p.spec.MinReadySeconds)*time.Second
	p.remembers = rules.Ready != nil && (minReady > 0 || rules.ReadyWithin > 0 && rules.NotReadySince == nil)
	if rules.NotReadySince == nil {
		p.spec.Rules.NotReadySince = func(c C) time.Time { return p.state.ready.since(object.ID(c), false, p.opts.Now()) }
	}
	if p.remembers && minReady > 0 && rules.Available == nil {
		p.spec.Rules.Available = func(c C) bool {
			return rules.Ready(c) && p.Now.Sub(p.state.ready.since(object.ID(c), true, p.opts.Now())) >= minReady
		}
	}
}

// specOf returns the Spec of an owner. If a finalizer keeps a deleted owner until its children are gone,
// the Spec wants no children.
func (p *pass[O, C]) specOf(owner O) (replicas.Spec[C], error) {
	spec, err := p.kind.Spec(owner)
	spec.Owner = owner
	spec.Replicas = spec.Wanted()
	return spec, err
}

// checkScope returns an error if the owner's namespace does not fit Kind.ClusterScoped. Events of
// children could not find such an owner.
func (r *reconciler[O, C]) checkScope(owner O) error {
	if r.kind.ClusterScoped == (owner.GetNamespace() == "") {
		return nil
	}
	where := "no namespace"
	if r.kind.ClusterScoped {
		where = "a namespace"
	}
	return fmt.Errorf("controller: %s %q: the owner is in %s, but Kind.ClusterScoped is %t", r.kind.Owner.Kind, object.Name(owner), where, r.kind.ClusterScoped)
}

// refuse sends an event that says why the owner's spec is refused. refuse sends one event for each
// generation of the owner and each text. The text may change within one generation, because annotations
// change without a new generation.
func (p *pass[O, C]) refuse(err error) {
	if e, ok := asRefused(err); ok && p.state.refused != e.Error() {
		p.state.refused = e.Error()
		p.event(corev1.EventTypeWarning, e.Reason, e.Error())
	}
}

// refuseSpec sends an event about an error of Kind.Spec, and returns the error. An error that is no
// refusal may be temporary, so the pass is tried again. Such an error also has one event for each
// generation of the owner and each text.
func (p *pass[O, C]) refuseSpec(err error) error {
	if isRefused(err) {
		p.refuse(err)
		return err
	}
	err = p.failure("Kind.Spec failed: %w", err)
	if p.state.refused != err.Error() {
		p.state.refused = err.Error()
		p.event(corev1.EventTypeWarning, FailedSpec, err.Error())
	}
	return err
}

// learn notes in the ledger what the last call has shown of the owner, and begins a hold unless there
// already is one.
func (p *pass[O, C]) learn(is ledger.Owner) {
	p.state.known.OwnerTold(is)
	if hold := &p.state.ownerWait; hold.Wait == 0 {
		hold.Double(p.opts.Now(), ownerHoldFirst, ownerHoldFirst)
	}
}

// ownerIsShown notes that the cached owner is new enough again, and ends the hold.
func (p *pass[O, C]) ownerIsShown() {
	p.state.known.OwnerTold(ledger.Owner{})
	p.state.ownerWait = backoff.Hold{}
}

// holdOwner begins the next hold and returns its length. Each hold is twice as long as the one before,
// and at most last.
func (p *pass[O, C]) holdOwner(now time.Time, last time.Duration) time.Duration {
	p.state.ownerWait.Double(now, ownerHoldFirst, last)
	return p.state.ownerWait.Wait
}

// upToDate returns the owner that the pass uses, which is normally the cached owner. If an earlier call
// has shown a newer version of the owner, passes do nothing for some seconds while they wait for the
// cache. After these seconds, passes read the owner from the server.
func (p *pass[O, C]) upToDate(ctx context.Context, cached O) (owner O, goOn bool) {
	if p.state == nil || p.isShown(cached) {
		return cached, true
	}
	p.Generation = cached.GetGeneration()
	known, now := p.state.known.Owner(), p.opts.Now()
	isBack := known.Gone && cached.GetResourceVersion() != known.Version
	wait, live := p.state.ownerWait.Remaining(now), p.state.ownerWait.Wait >= ownerHoldLast
	if wait <= 0 && !live {
		wait = p.holdOwner(now, ownerHoldLast)
	}
	if wait > 0 && !isBack {
		p.holdForOwner(wait)
		return cached, false
	}
	fresh, err := p.readOwner(ctx)
	switch {
	case p.OwnerErr != nil:
		p.fails(p.unread(ctx, stopsAll, p.holdOwner(now, ownerReadLast)))
		return cached, false
	case p.ownerRead:
		p.ownerIsShown()
		return cached, true
	case err != nil || fresh.GetUID() != cached.GetUID():
		p.holdForOwner(p.holdOwner(now, ownerGoneLast))
		return cached, false
	}
	p.OwnerWasStale, p.ownerOld, p.ownerRead = true, false, true
	p.comeBack(p.holdOwner(now, max(p.state.ownerWait.Wait, ownerReadLast)))
	return fresh, true
}

// wentByRead decides when the owner is read again after a pass that used the owner from the server. If
// such passes fail, each read waits longer than the last one. The caller's rate limiter cannot lengthen
// these waits, because the passes in between succeed and reset the limiter.
func (p *pass[O, C]) wentByRead(failed bool) {
	switch {
	case !p.OwnerWasStale || !p.ownerRead:
	case failed:
		p.holdOwner(p.opts.Now(), ownerGoneLast)
	case p.state.ownerWait.Wait > ownerReadLast:
		p.state.ownerWait.Wait = ownerReadLast
		p.comeBack(ownerReadLast)
	}
}

// isShown reports whether the cached owner is the newest version that is known, or wants the same as that
// version. If so, the ledger forgets the version that is known. If the owner is gone, isShown returns
// false. The server never uses the UID of such an owner again, so the cached owner must be old.
func (p *pass[O, C]) isShown(cached O) bool {
	known := p.state.known.Owner()
	is, typed := known.Is.(O)
	switch {
	case known.Gone:
		return false
	case !typed:
		p.state.ownerWait = backoff.Hold{}
		return true
	case resourceversion.Reached(cached.GetResourceVersion(), known.Version) || p.wantTheSame(cached, is):
		p.ownerIsShown()
		return true
	}
	return false
}

// holdForOwner puts off claims, creations and deletions, because the cache has an older version of the
// owner than the server.
func (p *pass[O, C]) holdForOwner(wait time.Duration) {
	p.OwnerWasStale = true
	p.gate(p.oldOwner(OwnerStale), "", max(wait, 1), nil).Earlier = true
}

// oldOwner returns OwnerGone if a call has shown that the owner is gone. oldOwner returns OwnerStale if a
// call of this pass has shown that the owner has changed. Otherwise oldOwner returns the given reason.
func (p *pass[O, C]) oldOwner(otherwise Reason) Reason {
	switch {
	case p.state.known.Owner().Gone:
		return OwnerGone
	case p.ownerOld:
		return OwnerStale
	}
	return otherwise
}

// readOwner reads the owner from the server, and notes the result.
func (p *pass[O, C]) readOwner(ctx context.Context) (O, error) {
	fresh, err := p.askOwner(ctx)
	p.OwnerErr = nil
	switch {
	case apierrors.IsNotFound(err):
		p.ownerGone()
		return fresh, err
	case err == nil && object.IsNil(fresh):
		p.OwnerErr = errNoObject
		return fresh, nil
	case err == nil && nameOf(fresh) != p.Name:
		p.OwnerErr = fmt.Errorf("the read returned %q", object.Name(fresh))
		return fresh, nil
	case err != nil:
		p.OwnerErr = err
		return fresh, err
	}
	if fresh.GetUID() != p.Owner.GetUID() {
		p.ownerGone()
		return fresh, nil
	}
	same := p.wantTheSame(p.Owner, fresh)
	p.ownerShown(fresh, same)
	p.ownerRead = p.ownerRead || same
	return fresh, nil
}

// ownerShown notes an owner that a call has shown. The argument same says whether fresh wants the same as
// the owner that the pass uses.
func (p *pass[O, C]) ownerShown(fresh O, same bool) {
	known := p.state.known.Owner()
	for _, shown := range []metav1.Object{p.cached, known.Is} {
		if shown != nil {
			_ = p.restores.noticeOlder(fresh, shown)
		}
	}
	if p.ownerOld = !same; !same || known != (ledger.Owner{}) {
		p.learn(ledger.Owner{Is: fresh, Version: fresh.GetResourceVersion()})
	}
}

// ownerGone notes that the server does not have the owner.
func (p *pass[O, C]) ownerGone() {
	p.ownerOld = true
	p.learn(ledger.Owner{Gone: true, Version: p.cached.GetResourceVersion()})
}

// unread sends an event, notes a gate and returns an error, because the owner could not be read. The
// argument stops says what the pass cannot do without the read.
func (p *pass[O, C]) unread(ctx context.Context, stops Stops, wait time.Duration) error {
	if ctx.Err() == nil {
		p.tell(OwnerUnread, "Error reading the owner: "+p.OwnerErr.Error())
	}
	g := p.gate(OwnerUnread, "", max(wait, serverDelay([]error{p.OwnerErr})), p.OwnerErr)
	g.Stops, g.waits = stops, stops == stopsAll
	return p.failure("reading it before the number is changed: %w", p.OwnerErr)
}

// ownerAgrees leaves out deletions and creations if the owner on the server no longer wants the same as
// the pass. ownerAgrees reads the owner only if necessary. The result ok says whether Kind.Prepare may
// see the plan.
func (p *pass[O, C]) ownerAgrees(ctx context.Context, planned, scale replicas.Scale[C]) (agreed replicas.Scale[C], ok bool) {
	isShown := p.kind.Prepare != nil && deletes(planned)
	if (isShown || deletes(scale)) && !p.mayDelete(ctx) {
		if isShown {
			return replicas.Scale[C]{}, false
		}
		scale.Delete, scale.Discard = nil, nil
	}
	if scale.Create > 0 && (p.ownerOld || !p.mayCreate(ctx)) {
		scale.Create, scale.Names = 0, nil
	}
	return scale, true
}

func deletes[C Object](scale replicas.Scale[C]) bool { return len(scale.Delete)+len(scale.Discard) > 0 }

// mayDelete reports whether the owner on the server still wants the same as the pass. Without this check,
// the pass could delete children for an old spec that wants fewer.
func (p *pass[O, C]) mayDelete(ctx context.Context) bool {
	if p.ownerRead {
		return true
	}
	_, _ = p.readOwner(ctx)
	if p.OwnerErr != nil {
		p.scaleFails(StopsDeletions, p.OwnerErr)
		p.fails(p.unread(ctx, StopsDeletions, 0))
		return false
	}
	if p.ownerOld {
		p.waitForOwner()
	}
	return p.ownerRead
}

// mayCreate reports whether the owner on the server still wants the same as the pass. One read in a term
// is enough, because a child too many can be deleted later. If children have left that the Controller did
// not delete, mayCreate also reads the owner.
func (p *pass[O, C]) mayCreate(ctx context.Context) bool {
	if p.ownerRead || (p.state.ownerTerm == p.inTerm || p.isOfTerm(ctx)) && !p.childrenLeft() {
		p.state.ownerTerm = p.inTerm
		return true
	}
	_, _ = p.readOwner(ctx)
	switch {
	case p.ownerOld:
		p.waitForOwner()
		return false
	case p.OwnerErr != nil && !apierrors.IsForbidden(p.OwnerErr):
		return true // the next creations read the owner again
	}
	p.state.ownerTerm = p.inTerm
	return true
}

// childrenLeft reports whether the owner has fewer active children than after the last pass. One cause is
// the garbage collector, which deletes the children of a deleted owner. For each owner, childrenLeft
// returns true at most once in leftHold.
func (p *pass[O, C]) childrenLeft() bool {
	if len(p.Active)+len(p.Released) >= p.state.active || p.state.leftWait.Remaining(p.Now) > 0 {
		return false
	}
	p.state.leftWait = backoff.Hold{Since: p.Now, Wait: leftHold}
	return true
}

// isOfTerm reports whether the owner is at least as new as every owner on the server was when the term
// began. If so, no earlier process saw a newer version of the owner.
func (p *pass[O, C]) isOfTerm(ctx context.Context) bool {
	versioner, ok := p.client.(Versioner)
	if !ok {
		return false
	}
	began := p.askOwnersVersion(ctx, versioner)
	return resourceversion.Reached(p.Owner.GetResourceVersion(), began)
}

// waitForOwner puts the rest of the pass off, because one of its calls has shown a newer version of the
// owner.
func (p *pass[O, C]) waitForOwner() {
	p.holdForOwner(p.state.ownerWait.Remaining(p.opts.Now()))
}

// wantTheSame reports whether two versions of an owner want the same children. If the generations differ,
// wantTheSame returns false, unless one of them is 0 or status writes also increase the generation.
func (p *pass[O, C]) wantTheSame(a, b O) bool {
	switch {
	case a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion():
		return true
	case (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil):
		return false
	case a.GetGeneration() != b.GetGeneration() && a.GetGeneration() != 0 && b.GetGeneration() != 0 && !p.statusCounts.Load():
		return false
	}
	was, err := p.specOf(a)
	is, otherErr := p.specOf(b)
	if err != nil || otherErr != nil {
		return err != nil && otherErr != nil
	}
	return p.specsAgree(&was, &is)
}

// specsAgree reports whether two specs lead to the same decisions about the children that exist.
func (p *pass[O, C]) specsAgree(was, is *replicas.Spec[C]) bool {
	return is.Replicas == was.Replicas && is.Draining() == was.Draining() && p.sameSlots(was, is) && slices.Equal(is.Taken, was.Taken) && is.MinReadySeconds == was.MinReadySeconds &&
		is.BurstReplicas == was.BurstReplicas && is.Paused == was.Paused && is.PendingAdoptions == was.PendingAdoptions && equal(is.MaxDeletions, was.MaxDeletions) &&
		equal(is.MaxUnavailable, was.MaxUnavailable) && equal(is.MaxSurge, was.MaxSurge) &&
		!object.IsNil(is.Selector) && !object.IsNil(was.Selector) && is.Selector.String() == was.Selector.String() &&
		p.rulesAgree(is.Rules, was.Rules)
}

// rulesAgree reports whether two sets of rules judge all existing children in the same way.
func (p *pass[O, C]) rulesAgree(a, b replicas.Rules[C]) bool {
	agree := func(a, b func(C) bool) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return !slices.ContainsFunc(p.view.children, func(c C) bool { return a(c) != b(c) })
	}
	return agree(a.Active, b.Active) && agree(a.Ready, b.Ready) && agree(a.MustGo, b.MustGo) && agree(a.MustStay, b.MustStay) &&
		agree(a.Discard, b.Discard) && agree(a.Failed, b.Failed) && a.ReadyWithin == b.ReadyWithin
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
