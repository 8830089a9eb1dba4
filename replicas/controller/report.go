// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
)

// report writes the status, whatever became of the pass, and joins its error to
// that of the pass. The write ends with ctx; only a Conflict is tried again, and
// only on an object of the same UID.
func (p *pass[O, C]) report(ctx context.Context, passErr error) error {
	p.Counts = p.count()
	if p.kind.Status == nil {
		p.nextCheck(passErr)
		return passErr
	}
	if err := p.writeStatus(ctx); err != nil {
		err = fmt.Errorf("controller: writing status of %s %q: %w", p.kind.Owner.Kind, object.Name(p.Owner), err)
		p.StatusErr = err
		if passErr == nil {
			p.retryOnly(0)
		}
		p.retryIn(serverDelay([]error{err}))
		return joinErrors(err, passErr)
	}
	p.nextCheck(passErr)
	return passErr
}

// writeStatus makes at most two writes (U3), and a read before each.
func (p *pass[O, C]) writeStatus(ctx context.Context) error {
	updated, differs, err := p.withStatus(p.Owner)
	if err != nil || !differs {
		return err
	}
	if !p.whole.mayWrite(p.Owner) {
		owner, err := p.toWrite(ctx)
		if err != nil {
			return err
		}
		if updated, differs, err = p.withStatus(owner); err != nil || !differs {
			return err
		}
	}
	written, err := p.updateStatus(ctx, updated)
	if !apierrors.IsConflict(err) {
		return p.written(updated, written, err)
	}
	fresh, err := p.readSame(ctx)
	if err != nil {
		return err
	}
	if updated, differs, err = p.withStatus(fresh); err != nil || !differs {
		return err
	}
	written, err = p.updateStatus(ctx, updated)
	return p.written(updated, written, err)
}

// toWrite returns the owner to write a status to, as the cached one may not be whole. If
// the rights to read it are missing, it is the cached one all the same.
func (p *pass[O, C]) toWrite(ctx context.Context) (O, error) {
	if !object.IsNil(p.asRead) {
		return p.asRead, nil
	}
	owner, err := p.readSame(ctx)
	if apierrors.IsForbidden(err) {
		p.whole.unreadable()
		return p.Owner, nil
	}
	return owner, err
}

// readSame reads the owner from the server. It is an error if that is another one.
func (p *pass[O, C]) readSame(ctx context.Context) (O, error) {
	fresh, err := p.readOwner(ctx)
	switch {
	case err != nil:
		return fresh, err
	case p.OwnerErr != nil:
		return fresh, p.OwnerErr
	case fresh.GetUID() != p.Owner.GetUID():
		return fresh, fmt.Errorf("original is gone: got uid %s, wanted %s", fresh.GetUID(), p.Owner.GetUID())
	}
	return fresh, nil
}

// withStatus returns a copy of the owner with its new status, and whether that is to be
// written.
func (p *pass[O, C]) withStatus(owner O) (updated O, differs bool, err error) {
	updated, ok := owner.DeepCopyObject().(O)
	if !ok {
		return updated, false, fmt.Errorf("%T.DeepCopyObject returned another type", owner)
	}
	if err := p.kind.Status(updated, p.Outcome); err != nil {
		return updated, false, err
	}
	return updated, !p.sameStatus(owner, updated) && !p.isDropped(owner, updated), nil
}

func (p *pass[O, C]) sameStatus(a, b O) bool {
	was, is := p.statusOf(a), p.statusOf(b)
	return reflect.DeepEqual(was, is) || equality.Semantic.DeepEqual(was, is) // the first is faster, and nearly always true
}

func (p *pass[O, C]) statusOf(owner O) any {
	if p.kind.StatusOf == nil {
		return owner
	}
	return p.kind.StatusOf(owner)
}

func (p *pass[O, C]) updateStatus(ctx context.Context, owner O) (O, error) {
	stored := ""
	p.state.wrote.begin(owner.GetResourceVersion())
	defer func() { p.state.wrote.end(stored) }()
	written, err := p.client.UpdateStatus(ctx, owner)
	if err == nil && object.IsNil(written) {
		err = errNoObject
	}
	if apierrors.IsNotFound(err) { // the owner is gone, or its kind has no such sub-resource
		if fresh, readErr := p.readOwner(ctx); readErr == nil && p.OwnerErr == nil && fresh.GetUID() == owner.GetUID() {
			err = fmt.Errorf("%w: it is there itself, so the kind %s has no sub-resource status: its CustomResourceDefinition needs subresources: {status: {}}", err, p.kind.Owner.Kind)
		}
	}
	if err != nil || written.GetUID() != owner.GetUID() { // it tells nothing about the owner
		return written, err
	}
	if owner.GetResourceVersion() != "" && owner.GetGeneration() != written.GetGeneration() {
		p.statusCounts.Store(true) // nobody else wrote in between
	}
	same := p.wantsTheSame(written)
	if same {
		stored = written.GetResourceVersion()
	}
	p.ownerShown(written, same && (written.GetDeletionTimestamp() == nil) == (p.Owner.GetDeletionTimestamp() == nil))
	return written, nil
}

// written records a write (X9).
func (p *pass[O, C]) written(sent, stored O, err error) error {
	if err != nil {
		return err
	}
	p.Status = stored
	p.writes.WroteAt(p.key, p.ownerResource, stored.GetResourceVersion())
	p.state.status = nil
	if p.kind.StatusOf != nil && !p.sameStatus(sent, stored) {
		p.state.status = &differing{p.statusOf(sent), p.statusOf(stored)}
	}
	return nil
}

// isDropped reports whether the status was sent as it is, and the owner still has
// what the server made of it.
func (p *pass[O, C]) isDropped(owner, updated O) bool {
	d := p.state.status
	return d != nil && equality.Semantic.DeepEqual(d.sent, p.statusOf(updated)) && equality.Semantic.DeepEqual(d.stored, p.statusOf(owner))
}

// wantsTheSame reports whether an owner with the status that was written wants what the
// pass went by: then nothing else is to be done. What new children are made from and who
// goes first do not matter, as none is missing and none is too many for another reason.
func (p *pass[O, C]) wantsTheSame(written O) bool {
	is, err := p.kind.Spec(written)
	return err == nil && p.saySame(&p.asked, &is)
}

// nextCheck asks for a requeue when the next child becomes available (M1, M2), unless
// the rate limiter does anyway (M7): where a server or a hold has its place, it may not.
func (p *pass[O, C]) nextCheck(passErr error) {
	after := p.nextAvailable()
	switch {
	case after <= 0:
	case passErr == nil || onlyRefused(passErr):
		p.comeBack(after)
	case p.retryAfter > 0:
		p.retryOnly(min(p.retryAfter, after))
	}
}

// nextAvailable is how long it takes until the next child becomes available, 0 if
// there is none to wait for.
func (p *pass[O, C]) nextAvailable() time.Duration {
	if pods, ok := any(p.counted).([]*corev1.Pod); ok {
		return p.nextPodAvailable(pods)
	}
	minReady := time.Duration(p.spec.MinReadySeconds) * time.Second
	if minReady <= 0 || p.rules.Ready == nil {
		p.state.ready.forget()
		return 0
	}
	var ready []types.UID
	for _, c := range p.counted {
		if p.rules.Ready(c) {
			ready = append(ready, object.ID(c))
		}
	}
	return p.state.ready.next(ready, p.opts.Now(), minReady)
}

// nextPodAvailable looks from the same instant as the status that was written, so that
// no pod falls between the two.
func (p *pass[O, C]) nextPodAvailable(pods []*corev1.Pod) (after time.Duration) {
	if p.Counts.Ready == p.Counts.Available {
		return 0
	}
	for _, c := range pods {
		after = earliest(after, pod.AvailableIn(c, p.spec.MinReadySeconds, p.Now))
	}
	if after == 0 {
		return 0
	}
	return max(after-p.opts.Now().Sub(p.Now), 1)
}
