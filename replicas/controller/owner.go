// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// wants determines the owner and the Spec that the pass uses, and reports whether the pass continues.
func (p *pass[O, C]) wants(ctx context.Context) bool {
	p.owners.awaitWrite(p.Name) // must come before the read of the cache, because the cache may change at any time
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
		p.step = scales // an owner that is gone has no gates
		p.forget(expectations.Key{NamespacedName: p.Name})
		if next := p.owners.sweep(p.Name, p.Now); next > 0 {
			p.requeueIn(next)
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
		if !isRefused(err) { // the error may be temporary, so the pass is tried again
			err = p.failure("Kind.Spec failed: %w", err)
		}
		p.refuseSpec(err)
		return false
	}
	p.spec.Owner, p.spec.Kind, p.spec.Now = owner, p.kind.Owner, p.Now
	p.spec.Replicas = p.spec.Wanted()
	p.rememberReadiness()
	p.rules, p.Desired = counting(p.spec.Rules), p.spec.Replicas
	p.deletePendingStrays(ctx)
	return true
}

// rememberReadiness sets the rules NotReadySince and Available in p.spec, if they are necessary. They use the
// times at which the Controller has seen children become ready or not ready. The clock that wrote the time in
// a child's status may differ from the Controller's clock, so this time can only make NotReadySince later.
// Available of pods is not set if the Ready condition tells it.
func (p *pass[O, C]) rememberReadiness() {
	rules, minReady := p.spec.Rules.Complete(), time.Duration(p.spec.MinReadySeconds)*time.Second
	if _, arePods := any(*new(C)).(*corev1.Pod); arePods && p.spec.Rules.Ready == nil {
		minReady = 0
	}
	p.remembers = rules.Ready != nil && (minReady > 0 || rules.ReadyWithin > 0)
	if !p.remembers {
		return
	}
	p.spec.Rules.NotReadySince = func(c C) (told time.Time) {
		if rules.NotReadySince != nil {
			if told = rules.NotReadySince(c); told.IsZero() {
				return told
			}
		}
		return p.state.ready.since(object.ID(c), false, told, p.opts.Now())
	}
	if minReady > 0 && rules.Available == nil {
		p.spec.Rules.Available = func(c C) bool { return rules.Ready(c) && p.Now.Sub(p.readySince(c)) >= minReady }
	}
}

func (p *pass[O, C]) readySince(c C) time.Time {
	return p.state.ready.since(object.ID(c), true, time.Time{}, p.opts.Now())
}

// specOf returns the Spec of an owner. If the owner is being deleted and a finalizer keeps it until its
// children are gone, the Spec wants no children.
func (p *pass[O, C]) specOf(owner O) (replicas.Spec[C], error) {
	spec, err := p.kind.Spec(owner)
	spec.Owner = owner
	spec.Replicas = spec.Wanted()
	return spec, err
}

// checkScope returns an error if Kind.ClusterScoped is true for an owner in a namespace, or false for an
// owner in no namespace. If Kind.ClusterScoped does not match an owner, the events of its children do not
// request a pass.
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

// refuse sends an event if err is a refusal.
func (p *pass[O, C]) refuse(err error) {
	if e, ok := asRefused(err); ok {
		p.sendRefusal(e.Reason, e.Error())
	}
}

// sendRefusal sends an event about a refusal. Within one generation of the owner, another event is sent only
// if the message has changed. For example, annotations can change the message without increasing the
// generation.
func (p *pass[O, C]) sendRefusal(reason, message string) {
	if p.state.refused != message {
		p.state.refused = message
		p.event(corev1.EventTypeWarning, reason, message)
	}
}

// refusalAgain is how often the refusal of a deleted owner's spec is reported.
const refusalAgain = time.Hour

// refuseSpec records that the pass cannot act on the owner's spec.
func (p *pass[O, C]) refuseSpec(err error) {
	reason, message := FailedSpec, err.Error()
	if e, ok := asRefused(err); ok {
		reason, message = e.Reason, e.Error()
	}
	if p.Owner.GetDeletionTimestamp() != nil {
		// Nobody changes an owner that was deleted, so no event wakes it, and its finalizer keeps it. Who asks
		// months later why it is still there must find an event, and the server drops events after an hour.
		message += " (the owner is being deleted, and the Controller deletes none of its children)"
		h := p.state.holds.getOrAdd(SpecRefused, "")
		if h.Remaining(p.Now) <= 0 {
			h.Hold, p.state.refused = backoff.Hold{Since: p.Now, Wait: refusalAgain}, ""
		}
		p.requeueIn(h.Remaining(p.Now))
	}
	p.sendRefusal(reason, message)
	p.gate(SpecRefused, "", 0, err)
	p.fails(err)
}

// learn records in the ledger what the last call has shown about the owner. If ownerWait is not set yet, it
// is set to the shortest delay.
func (p *pass[O, C]) learn(is ledger.Owner) {
	p.state.known.OwnerTold(is)
	if hold := &p.state.ownerWait; hold.Wait == 0 {
		OwnerStale.grow(hold, p.opts.Now())
	}
}

// ownerIsShown records that the cached owner is new enough again, and resets ownerWait.
func (p *pass[O, C]) ownerIsShown() {
	p.state.known.OwnerTold(ledger.Owner{})
	p.state.ownerWait = backoff.Hold{}
}

// upToDate returns the owner that the pass uses, which is normally the cached owner. If an earlier call has
// shown a newer version of the owner, passes first wait some seconds for the cache and do nothing else. If
// the cache does not show the newer version after some seconds, passes read the owner from the server.
func (p *pass[O, C]) upToDate(ctx context.Context, cached O) (owner O, goOn bool) {
	if p.state == nil || p.isShown(cached) {
		return cached, true
	}
	p.Generation = cached.GetGeneration()
	known, now := p.state.known.Owner(), p.opts.Now()
	isBack := known.Gone && cached.GetResourceVersion() != known.Version
	hold := &p.state.ownerWait
	wait, live := hold.Remaining(now), hold.Wait >= OwnerStale.row().longest
	if wait <= 0 && !live {
		wait = OwnerStale.grow(hold, now)
	}
	if wait > 0 && !isBack {
		p.holdForOwner(wait)
		return cached, false
	}
	fresh, err := p.readOwner(ctx)
	switch {
	case p.OwnerErr != nil:
		p.fails(p.unread(ctx, StopsClaims, p.OwnerErr))
		*hold = p.state.holds.getOrAdd(OwnerUnread, "").Hold // passes that an event causes meanwhile read nothing
		return cached, false
	case p.ownerRead:
		p.ownerIsShown()
		return cached, true
	case err != nil || fresh.GetUID() != cached.GetUID():
		p.holdForOwner(OwnerGone.grow(hold, now))
		return cached, false
	}
	p.OwnerWasStale, p.ownerOld, p.ownerRead = true, false, true
	hold.Double(now, 1, max(hold.Wait, ownerReadLast))
	p.requeueIn(hold.Wait)
	return fresh, true
}

// wentByRead schedules the next read of the owner after a pass that used the owner from the server. If
// passes fail although they use the owner from the server, the delay between the reads grows. The caller's
// rate limiter cannot provide this delay, because the passes between two reads succeed and reset the rate
// limiter.
func (p *pass[O, C]) wentByRead(failed bool) {
	switch {
	case !p.OwnerWasStale || !p.ownerRead:
	case failed:
		OwnerGone.grow(&p.state.ownerWait, p.opts.Now())
	case p.state.ownerWait.Wait > ownerReadLast:
		p.state.ownerWait.Wait = ownerReadLast
		p.requeueIn(ownerReadLast)
	}
}

// ownerReadLast is the longest time between two reads of an owner that the cache does not show.
const ownerReadLast = 10 * time.Second

// isShown reports whether the cached owner is new enough for the pass. The cached owner must be at least as
// new as the newest known version, or both versions must want the same children. If isShown returns true, the
// ledger forgets the known version. If the owner is known to be gone, isShown returns false. The server never
// reuses a UID, so an owner in the cache with the UID of a deleted owner is old.
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

// holdForOwner postpones claims, creations and deletions, because the cache contains an older version of
// the owner than the server.
func (p *pass[O, C]) holdForOwner(wait time.Duration) {
	p.OwnerWasStale = true
	p.gate(p.oldOwner(OwnerStale), "", max(wait, 1), nil).Earlier = true
}

// oldOwner returns the Reason for a gate. The result is OwnerGone if a call has shown that the owner is gone,
// or OwnerStale if a call of this pass has shown that the owner has changed. If no call has shown that the
// owner is gone, and no call of this pass has shown that the owner has changed, oldOwner returns its
// argument.
func (p *pass[O, C]) oldOwner(otherwise Reason) Reason {
	switch {
	case p.state.known.Owner().Gone:
		return OwnerGone
	case p.ownerOld:
		return OwnerStale
	}
	return otherwise
}

// readOwner reads the owner from the server, and records what the read has shown. If the read itself
// fails, readOwner sets p.OwnerErr.
func (p *pass[O, C]) readOwner(ctx context.Context) (O, error) {
	fresh, err := p.askOwner(ctx)
	p.OwnerErr = nil
	defer p.holdReads()
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
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("%w (the right to get %s in the group %q is needed)", err, p.ownerResource.Resource, p.kind.Owner.Group)
	}
	if err != nil {
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

// holdReads is called after a read of the owner. The reads of an owner that may be gone are up to five minutes
// apart.
func (p *pass[O, C]) holdReads() {
	if p.OwnerErr == nil {
		p.state.holds.end("", OwnerUnread)
		return
	}
	h := p.state.holds.getOrAdd(OwnerUnread, "")
	OwnerUnread.grow(&h.Hold, p.opts.Now())
	h.Wait, h.why = max(h.Wait, serverDelay([]error{p.OwnerErr})), p.OwnerErr
}

// ownerShown records the version of the owner that a call has returned. If the argument same is true, the
// returned version wants the same children as p.Owner.
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

// ownerGone records that the owner no longer exists on the server.
func (p *pass[O, C]) ownerGone() {
	p.ownerOld = true
	p.learn(ledger.Owner{Gone: true, Version: p.cached.GetResourceVersion()})
}

// unread records that the owner could not be read, and returns an error. The argument stops contains the parts
// of the pass that are skipped besides creations and deletions.
func (p *pass[O, C]) unread(ctx context.Context, stops Stops, why error) error {
	if ctx.Err() == nil {
		p.sendEventOnce(OwnerUnread, "Error reading the owner: "+why.Error())
	}
	g := p.gate(OwnerUnread, "", max(p.state.holds.getOrAdd(OwnerUnread, "").Wait, serverDelay([]error{why})), why)
	g.Stops |= stops
	return p.failure("reading it before the number of children is changed: %w", why)
}

// ownerAgrees removes deletions and creations from scale if the owner on the server no longer wants the
// same children as p.Owner. It reads the owner only if necessary. The result ok reports whether
// Kind.Prepare can be called with the plan.
func (p *pass[O, C]) ownerAgrees(ctx context.Context, planned, scale replicas.Scale[C]) (agreed replicas.Scale[C], ok bool) {
	isShown := p.kind.Prepare != nil && deletes(planned)
	if (isShown || deletes(scale)) && !p.mayDelete(ctx) {
		if isShown {
			return replicas.Scale[C]{}, false
		}
		scale.Delete, scale.Discard = nil, nil
	}
	if scale.Create > 0 {
		scale.Create = p.mayCreate(ctx, scale.Create)
		scale.Names = scale.Names[:scale.Create]
	}
	return scale, true
}

func deletes[C Object](scale replicas.Scale[C]) bool { return len(scale.Delete)+len(scale.Discard) > 0 }

// mayDelete reports whether the pass may delete children. This is the case if the owner on the server still
// wants the same children as p.Owner. Without this check, an old spec that wants fewer children could cause
// deletions.
func (p *pass[O, C]) mayDelete(ctx context.Context) bool {
	if !p.checkOwner(ctx, true) && p.OwnerErr != nil {
		p.scaleFails(StopsDeletions, p.OwnerErr)
	}
	return p.ownerRead
}

// checkOwner reads the owner, unless this pass has already done so, and reports whether the owner on the
// server wants the same children as p.Owner. If the pass needs the read and the read fails, later passes wait
// before they read again.
func (p *pass[O, C]) checkOwner(ctx context.Context, needed bool) bool {
	if p.ownerRead || p.OwnerErr != nil || needed && p.held(OwnerUnread, "", "", 0) {
		return p.ownerRead
	}
	_, _ = p.readOwner(ctx)
	switch {
	case p.OwnerErr != nil && needed:
		p.fails(p.unread(ctx, 0, p.OwnerErr))
	case p.ownerOld:
		p.waitForOwner()
	}
	return p.ownerRead
}

// mayCreate returns how many of the given number of children the pass may create. If p.Owner is not known to
// be new enough for this term, mayCreate reads the owner from the server. One read in a term is enough,
// because an extra child can be deleted later.
func (p *pass[O, C]) mayCreate(ctx context.Context, create int) int {
	switch {
	case p.ownerOld:
	case p.ownerRead, p.left == 0 && (p.state.ownerTerm == p.inTerm || p.isOfTerm(ctx)), p.checkOwner(ctx, p.left > 0):
		p.state.ownerTerm, p.left = p.inTerm, 0
		return create
	}
	if p.ownerOld {
		return 0
	}
	return max(create-p.left, 0) // if the owner is gone, the garbage collector deletes each child that replaces another
}

// isOfTerm reports whether p.Owner has reached the resourceVersion that the server had for owners when the
// term began. If p.Owner has reached this resourceVersion, no earlier process can have seen a newer version
// of the owner.
func (p *pass[O, C]) isOfTerm(ctx context.Context) bool {
	versioner, ok := p.client.(Versioner)
	if !ok {
		return false
	}
	began := p.askOwnersVersion(ctx, versioner)
	return resourceversion.Reached(p.Owner.GetResourceVersion(), began)
}

// waitForOwner postpones the rest of the pass, because a call of the pass has shown a newer version of the
// owner.
func (p *pass[O, C]) waitForOwner() {
	p.holdForOwner(p.state.ownerWait.Remaining(p.opts.Now()))
}

// wantTheSame reports whether two versions of an owner want the same children. If the generations differ,
// the specs differ, too. The generations are not compared if one of them is 0, or if status writes also
// increase the generation.
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

// specsAgree reports whether two specs lead to the same decisions about the existing children.
func (p *pass[O, C]) specsAgree(was, is *replicas.Spec[C]) bool {
	return is.Replicas == was.Replicas && is.Draining() == was.Draining() && p.sameSlots(was, is) && slices.Equal(is.Taken, was.Taken) && is.MinReadySeconds == was.MinReadySeconds &&
		is.BurstReplicas == was.BurstReplicas && is.Paused == was.Paused && is.PendingAdoptions == was.PendingAdoptions && equal(is.MaxDeletions, was.MaxDeletions) &&
		equal(is.MaxUnavailable, was.MaxUnavailable) && equal(is.MaxSurge, was.MaxSurge) && equality.Semantic.DeepEqual(is.DeleteOptions, was.DeleteOptions) &&
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
