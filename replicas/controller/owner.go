// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// learn notes what a call has shown of the owner last. The hold goes on, if there is one.
func (p *pass[O, C]) learn(is ledger.Owner) {
	p.state.known.OwnerTold(is)
	if hold := &p.state.owner; hold.Wait == 0 {
		hold.Double(p.opts.Now(), ownerHoldFirst, ownerHoldFirst)
	}
}

// ownerIsShown notes that the cache shows what is known of the owner.
func (p *pass[O, C]) ownerIsShown() {
	p.state.known.OwnerTold(ledger.Owner{})
	p.state.owner = backoff.Hold{}
}

// holdOwner begins the next hold, and returns how long it lasts.
func (p *pass[O, C]) holdOwner(now time.Time, last time.Duration) time.Duration {
	p.state.owner.Double(now, ownerHoldFirst, last)
	return p.state.owner.Wait
}

// upToDate returns the owner that the pass goes by. That is the cached one unless an older
// call has shown a newer one. Then the pass does nothing for some seconds, and after
// that goes by a read of the server.
func (p *pass[O, C]) upToDate(ctx context.Context, cached O) (owner O, goOn bool, err error) {
	if p.state == nil || p.isShown(cached) {
		return cached, true, nil
	}
	p.Generation = cached.GetGeneration()
	known, now := p.state.known.Owner(), p.opts.Now()
	isBack := known.Gone && cached.GetResourceVersion() != known.Version
	wait, live := p.state.owner.Remaining(now), p.state.owner.Wait >= ownerHoldLast
	if wait <= 0 && !live {
		wait = p.holdOwner(now, ownerHoldLast)
	}
	if wait > 0 && !isBack {
		p.holdForOwner(wait)
		return cached, false, nil
	}
	fresh, err := p.readOwner(ctx)
	switch {
	case p.OwnerErr != nil:
		return cached, false, p.unread(ctx, p.holdOwner(now, ownerReadLast))
	case p.ownerRead:
		p.ownerIsShown()
		return cached, true, nil
	case err != nil || fresh.GetUID() != cached.GetUID():
		p.holdForOwner(p.holdOwner(now, ownerGoneLast))
		return cached, false, nil
	}
	p.OwnerWasStale, p.ownerOld, p.ownerRead = true, false, true
	p.comeBack(p.holdOwner(now, max(p.state.owner.Wait, ownerReadLast)))
	return fresh, true, nil
}

// wentByRead says when the owner is read again after a pass that went by a read. If that
// failed, each read waits longer, as the passes in between are no errors and make the
// caller's rate limiter start anew.
func (p *pass[O, C]) wentByRead(failed bool) {
	switch {
	case !p.OwnerWasStale || !p.ownerRead:
	case failed:
		p.holdOwner(p.opts.Now(), ownerGoneLast)
	case p.state.owner.Wait > ownerReadLast:
		p.state.owner.Wait = ownerReadLast
		p.comeBack(ownerReadLast)
	}
}

// isShown reports whether the cache shows an owner as new as it is known, or one that wants
// the same. Then nothing is to be remembered any longer. An owner that is gone does not
// come back under its UID: what the cache shows of it later is from before.
func (p *pass[O, C]) isShown(cached O) bool {
	known := p.state.known.Owner()
	is, typed := known.Is.(O)
	switch {
	case known.Gone:
		return false
	case !typed:
		p.state.owner = backoff.Hold{}
		return true
	case resourceversion.Reached(cached.GetResourceVersion(), known.Version) || p.wantTheSame(cached, is):
		p.ownerIsShown()
		return true
	}
	return false
}

// holdForOwner puts off what is to be created or deleted, as the cache has an older owner
// than the server.
func (p *pass[O, C]) holdForOwner(wait time.Duration) {
	p.OwnerWasStale = true
	reason := OwnerStale
	if p.state.known.Owner().Gone {
		reason = OwnerGone
	}
	p.gate(reason, "", max(wait, 1), nil).Earlier = true
}

// readOwner reads the owner from the server, and notes what that shows.
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
		p.OwnerErr = fmt.Errorf("the read was answered with %q", object.Name(fresh))
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

// ownerShown notes an owner that a call has shown, and whether it wants what the one wants
// by which the pass goes.
func (p *pass[O, C]) ownerShown(fresh O, same bool) {
	known := p.state.known.Owner()
	for _, shown := range []metav1.Object{p.cached, known.Is} {
		if shown != nil {
			_ = p.restores.wentBack(fresh, shown)
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

// unread tells that the owner could not be read although nothing can be done without that.
func (p *pass[O, C]) unread(ctx context.Context, wait time.Duration) error {
	if ctx.Err() == nil {
		p.tell(OwnerUnread, "Error reading the owner: "+p.OwnerErr.Error())
	}
	p.gate(OwnerUnread, "", max(wait, serverDelay([]error{p.OwnerErr})), p.OwnerErr)
	return p.failure("reading it before the number is changed: %w", p.OwnerErr)
}

// mayDelete reports whether the owner on the server still wants what the pass goes by: an
// old spec may want fewer children.
func (p *pass[O, C]) mayDelete(ctx context.Context) (bool, error) {
	if p.ownerRead {
		return true, nil
	}
	_, _ = p.readOwner(ctx)
	if p.OwnerErr != nil {
		p.ScaleErr, p.undeleted = p.OwnerErr, true
		return false, p.unread(ctx, 0)
	}
	if p.ownerOld {
		p.waitForOwner()
	}
	return p.ownerRead, nil
}

// mayCreate reports whether the owner on the server still wants what the pass goes by. The
// owner is read once in a term, because later a child that is one too many is deleted again,
// and if children left that the Controller did not delete.
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
		return true // the next creations ask again
	}
	p.state.ownerTerm = p.inTerm
	return true
}

// childrenLeft reports whether there are fewer active children than the last pass left, which
// is what a garbage collector does when the owner is deleted. For each owner that is so once
// in leftHold at most.
func (p *pass[O, C]) childrenLeft() bool {
	if len(p.Active)+len(p.Released) >= p.state.active || p.state.childLeft.Remaining(p.Now) > 0 {
		return false
	}
	p.state.childLeft = backoff.Hold{Since: p.Now, Wait: leftHold}
	return true
}

// isOfTerm reports whether the cache shows an owner that is at least as new as the server's
// owners were when the term began. Then no earlier process saw a newer one.
func (p *pass[O, C]) isOfTerm(ctx context.Context) bool {
	versioner, ok := p.client.(Versioner)
	if !ok {
		return false
	}
	began := p.askOwnersVersion(ctx, versioner)
	return resourceversion.Reached(p.Owner.GetResourceVersion(), began)
}

// waitForOwner puts the rest of the pass off, as a call of its own has shown a newer owner.
func (p *pass[O, C]) waitForOwner() {
	p.holdForOwner(p.state.owner.Remaining(p.opts.Now()))
}

// wantTheSame reports whether two versions of an owner want the same children. Generations
// tell that, unless they are 0, or grow when a status is written.
func (p *pass[O, C]) wantTheSame(a, b O) bool {
	switch {
	case a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion():
		return true
	case (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil):
		return false
	case a.GetGeneration() != b.GetGeneration() && a.GetGeneration() != 0 && b.GetGeneration() != 0 && !p.statusCounts.Load():
		return false
	}
	was, err := p.kind.Spec(a)
	is, otherErr := p.kind.Spec(b)
	if err != nil || otherErr != nil {
		return err != nil && otherErr != nil
	}
	return p.saySame(&was, &is)
}

// saySame reports whether two specs ask for the same children, of those that there are.
func (p *pass[O, C]) saySame(was, is *replicas.Spec[C]) bool {
	return is.Replicas == was.Replicas && p.sameSlots(was, is) && slices.Equal(is.Taken, was.Taken) && is.MinReadySeconds == was.MinReadySeconds &&
		is.BurstReplicas == was.BurstReplicas && is.Paused == was.Paused && is.PendingAdoptions == was.PendingAdoptions && same(is.MaxDeletions, was.MaxDeletions) &&
		!object.IsNil(is.Selector) && !object.IsNil(was.Selector) && is.Selector.String() == was.Selector.String() &&
		p.sayTheSame(is.Rules, was.Rules)
}

// sayTheSame reports whether two rules are the same for the children that there are.
func (p *pass[O, C]) sayTheSame(a, b replicas.Rules[C]) bool {
	agree := func(a, b func(C) bool) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return !slices.ContainsFunc(p.children, func(c C) bool { return a(c) != b(c) })
	}
	return agree(a.Active, b.Active) && agree(a.Ready, b.Ready) && agree(a.MustGo, b.MustGo) && agree(a.MustStay, b.MustStay) && agree(a.Discard, b.Discard)
}

func same(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }
