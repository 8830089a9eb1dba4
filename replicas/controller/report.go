// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/mergepatch"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/selector"
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

// writeStatus makes at most two writes. The second one follows a Conflict, and is of the owner
// as it is read then (U3).
func (p *pass[O, C]) writeStatus(ctx context.Context) error {
	err := p.patchStatus(ctx, p.Owner)
	if !apierrors.IsConflict(err) {
		return err
	}
	fresh, err := p.readSame(ctx)
	if err != nil {
		return err
	}
	return p.patchStatus(ctx, fresh)
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

// patchStatus brings the status of an owner up to date, and makes no call if it is so already.
func (p *pass[O, C]) patchStatus(ctx context.Context, owner O) error {
	updated, ok := owner.DeepCopyObject().(O)
	if !ok {
		return fmt.Errorf("%T.DeepCopyObject returned another type", owner)
	}
	if err := p.kind.Status(updated, p.Outcome); err != nil {
		return err
	}
	if p.sameStatus(owner, updated) || p.isDropped(owner, updated) {
		return nil
	}
	patch, err := p.statusPatch(owner, updated)
	if err != nil || len(patch.Data) == 0 {
		return err
	}
	stored, err := p.sendStatus(ctx, updated, patch)
	if err != nil {
		return err
	}
	p.Status = stored
	p.writes.WroteAt(p.key, p.ownerResource, stored.GetResourceVersion()) // X9
	p.state.status = nil
	if p.kind.StatusOf != nil && !p.sameStatus(updated, stored) {
		p.state.status = &differing{p.statusOf(updated), p.statusOf(stored)}
	}
	return nil
}

// statusPatch returns the patch that gives an owner its new status, and the zero patch if that
// is the same as JSON. The rest of the owner is not in it, as the cache may have dropped some. What
// has not changed of the status is, as the server may lack it: a field that is 0 where there is no
// status yet, and that it requires.
func (p *pass[O, C]) statusPatch(owner, updated O) (selector.Patch, error) {
	was, err := p.statusJSON(owner)
	is, otherErr := p.statusJSON(updated)
	if err = joinErrors(err, otherErr); err != nil || reflect.DeepEqual(was, is) {
		return selector.Patch{}, err
	}
	var body struct {
		Metadata struct {
			UID             types.UID `json:"uid,omitempty"`
			ResourceVersion string    `json:"resourceVersion,omitempty"`
		} `json:"metadata"`
		Status map[string]any `json:"status"`
	}
	body.Metadata.UID, body.Metadata.ResourceVersion, body.Status = owner.GetUID(), owner.GetResourceVersion(), mergepatch.Between(was, is)
	data, err := json.Marshal(body)
	return selector.Patch{Type: types.MergePatchType, Data: data}, err
}

func (p *pass[O, C]) statusJSON(owner O) (map[string]any, error) {
	var of any = owner
	if p.kind.StatusOf != nil {
		of = map[string]any{"status": p.kind.StatusOf(owner)}
	}
	text, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	var is struct {
		Status map[string]any `json:"status"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a number stays as it is
	err = decoder.Decode(&is)
	return is.Status, err
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

// sendStatus sends a patch of the status, and notes what the answer shows.
func (p *pass[O, C]) sendStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	stored := ""
	p.state.wrote.begin(owner.GetResourceVersion())
	defer func() { p.state.wrote.end(stored) }()
	written, err := p.askStatus(ctx, owner, patch)
	if err == nil && object.IsNil(written) {
		err = errNoObject
	}
	if apierrors.IsNotFound(err) { // the owner is gone, or its kind has no such sub-resource
		if fresh, readErr := p.readOwner(ctx); readErr == nil && p.OwnerErr == nil && fresh.GetUID() == owner.GetUID() {
			err = fmt.Errorf("%w: it is there itself, so the kind %s has no sub-resource status: its CustomResourceDefinition needs subresources: {status: {}}", err, p.kind.Owner.Kind)
		}
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w (the right to patch %s/status in the group %q is needed)", err, p.ownerResource.Resource, p.kind.Owner.Group)
		p.tell(StatusForbidden, "Error writing the status: "+err.Error())
		p.gate(StatusForbidden, "", 0, err)
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
