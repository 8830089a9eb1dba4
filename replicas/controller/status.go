// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/mergepatch"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/status"
)

// An Outcome is what the status of an owner is made from.
type Outcome[C Object] struct {
	// Counts are the numbers of children, by the Rules of the Spec. If Cache.ChildrenVersion says how
	// new the cache is, Counts are as the pass leaves the children, even if the cache does not show it
	// yet. Children that it created count, and children that it deleted count as terminating or not at
	// all. Otherwise Counts are the numbers of Active and Terminating.
	Counts status.Counts
	// Active are the active children as they were before the pass created or
	// deleted any; Terminating are the children that are being deleted and are not
	// active.
	Active, Terminating []C
	// Desired is how many children were wanted when the pass began, and Generation
	// the owner's generation then.
	Desired    int32
	Generation int64
	// Gates are what has held the pass back so far, in the order of the reasons. If there is none,
	// nothing did.
	Gates []Gate
	// ScaleErr is why a creation or deletion failed; nil if none did.
	ScaleErr error
	// Now is the time for which everything was judged.
	Now time.Time

	unscaled Stops // what ScaleErr is about
}

// Waiting reports whether the pass left the number of children alone because something else must happen
// first. The reason is a cache that is old or lacks earlier calls, a hold, a failed claim, a Conflict,
// or the deletion of the owner.
func (o Outcome[C]) Waiting() bool {
	return slices.ContainsFunc(o.Gates, func(g Gate) bool { return g.waits || g.Reason.row().waits })
}

// HeldBack reports whether the pass left out creations, deletions or claims because an earlier
// one had put them off.
func (o Outcome[C]) HeldBack() bool {
	return slices.ContainsFunc(o.Gates, func(g Gate) bool { return g.Earlier && g.Stops != 0 })
}

// Failure returns the argument for status.SetFailure, which makes the ReplicaFailure condition from it.
// If only deletions failed, Active of the result is more than Desired. The reason is then FailedDelete,
// even if the deletions were of children that must go and there are not too many.
func (o Outcome[C]) Failure() status.Failure {
	desired := o.Desired
	f := status.Failure{
		Err: o.ScaleErr, Waiting: o.Waiting(), Active: int32(len(o.Active)), Desired: &desired,
		ObservedGeneration: o.Generation, Now: o.Now,
	}
	if o.unscaled == StopsDeletions && f.Active <= o.Desired && o.Desired < math.MaxInt32 {
		f.Active = o.Desired + 1
	}
	return f
}

// report writes the status, even if the pass failed. The write ends with ctx. It is tried again only
// after a Conflict, and only on an object of the same UID.
func (p *pass[O, C]) report(ctx context.Context) {
	var counted []C
	p.Counts, counted = p.count()
	if p.kind.Status != nil {
		if err := p.writeStatus(ctx); err != nil {
			p.StatusErr = fmt.Errorf("controller: writing status of %s %q: %w", p.kind.Owner.Kind, object.Name(p.Owner), err)
			if p.err() == nil {
				p.retryOnly(0)
			}
			p.retryIn(serverDelay([]error{err}))
			p.errs = slices.Insert(p.errs, 0, p.StatusErr) // the status comes first (U5)
		}
	}
	p.nextCheck(counted)
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

// readSame reads the owner from the server. It returns an error if the server has another one.
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

// patchStatus brings the status of an owner up to date, and makes no call if it already is.
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
	p.state.storedStatus = nil
	if p.kind.StatusOf != nil && !p.sameStatus(updated, stored) {
		p.state.storedStatus = &differing{p.statusOf(updated), p.statusOf(stored)}
	}
	return nil
}

// statusPatch returns the patch that gives an owner its new status, and the zero patch if that is the
// same as JSON. The patch leaves out the rest of the owner, because the cache may have dropped some of
// it. It has the unchanged parts of the status, because the server may lack them. For example, there is
// no status yet and the server requires a field that is 0.
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
	if err != nil || written.GetUID() != owner.GetUID() { // the answer says nothing about the owner
		return written, err
	}
	if owner.GetResourceVersion() != "" && owner.GetGeneration() != written.GetGeneration() {
		p.statusCounts.Store(true) // there was no other write in between
	}
	same := p.stillWants(written)
	if same {
		stored = written.GetResourceVersion()
	}
	p.ownerShown(written, same && (written.GetDeletionTimestamp() == nil) == (p.Owner.GetDeletionTimestamp() == nil))
	return written, nil
}

// isDropped reports whether the same status was sent before, and the owner still has what the server
// made of it.
func (p *pass[O, C]) isDropped(owner, updated O) bool {
	d := p.state.storedStatus
	return d != nil && equality.Semantic.DeepEqual(d.sent, p.statusOf(updated)) && equality.Semantic.DeepEqual(d.stored, p.statusOf(owner))
}

// stillWants reports whether an owner with the written status wants the same as the pass. If so, nothing
// else has to be done. How new children are made and which child goes first do not matter, because none
// is missing and none is too many for another reason.
func (p *pass[O, C]) stillWants(written O) bool {
	is, err := p.specOf(written)
	return err == nil && p.specsAgree(&p.spec, &is)
}

// nextCheck asks for a requeue when the next child becomes available (M1, M2), unless the rate limiter
// does anyway (M7). If a server or a hold sets the delay instead, the shorter delay counts.
func (p *pass[O, C]) nextCheck(counted []C) {
	switch after := p.nextAvailable(counted); {
	case after <= 0:
	case p.err() == nil || onlyRefused(p.err()):
		p.comeBack(after)
	case p.retryAfter > 0:
		p.retryOnly(min(p.retryAfter, after))
	}
}

// nextAvailable is how long it takes until the next child becomes available, or until a child has been
// unready for Rules.ReadyWithin. It is 0 if there is no such child.
func (p *pass[O, C]) nextAvailable(counted []C) (after time.Duration) {
	if pods, ok := any(counted).([]*corev1.Pod); ok {
		after = p.nextPodAvailable(pods)
	}
	if !p.remembers {
		p.state.ready.forget()
	}
	if !p.remembers && p.spec.Rules.ReadyWithin <= 0 {
		return after
	}
	now, rules, minReady := p.opts.Now(), p.spec.Rules.Complete(), time.Duration(p.spec.MinReadySeconds)*time.Second
	if p.remembers {
		is := make(map[types.UID]bool, len(counted))
		for _, c := range counted {
			is[object.ID(c)] = rules.Ready(c)
		}
		p.state.ready.see(is, now)
	}
	wait := func(from time.Time, d time.Duration) {
		if at := from.Add(d); at.After(p.Now) { // when the children were judged
			after = earliest(after, max(at.Sub(now), 1))
		}
	}
	for _, c := range counted {
		switch isReady := rules.Ready(c); {
		case !isReady && rules.ReadyWithin > 0:
			wait(rules.NotReadySince(c), rules.ReadyWithin)
		case isReady && p.remembers && minReady > 0:
			wait(p.state.ready.since(object.ID(c), true, now), minReady)
		}
	}
	return after
}

// nextPodAvailable uses the same time as the written status, so that no pod falls between the two.
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

// count counts the children as they are now, if the version of the cache is known. It includes those
// that this pass and earlier ones created, and leaves out those that they deleted, even if the cache
// does not show that (T1). Otherwise it counts them as the cache has them, except those that turned out
// to be gone, because later passes know that too.
//
// A child that vanishes is not counted at all. Its deletion is done when the server accepts it. The
// cache may show the child as terminating for a moment, which must not appear in the status.
func (p *pass[O, C]) count() (counts status.Counts, counted []C) {
	known, terminates := p.snapshot.Version != "", p.Terminating
	if known {
		terminates = slices.DeleteFunc(slices.Clone(terminates), vanishes)
	}
	stay, come, leave := p.state.known.Split(p.Active)
	if !known {
		counted = append(slices.Clip(stay), leave...)
		return p.tally(append(slices.Clip(counted), terminates...)), counted
	}
	counted = append(append(slices.Clip(stay), come...), p.Created...)
	var terminating int32
	for _, c := range leave {
		switch {
		case !lingers(c):
		case p.staysActive(c):
			counted = append(counted, c)
		default:
			terminating++
		}
	}
	counts = p.tally(append(slices.Clip(counted), terminates...))
	counts.Terminating += terminating
	return counts, counted
}

// tally counts the children by the Kind's rules, and pods as the status of a ReplicaSet
// does.
func (p *pass[O, C]) tally(children []C) status.Counts {
	pods, arePods := any(children).([]*corev1.Pod)
	if !arePods {
		return status.Count(children, p.rules)
	}
	var template map[string]string
	if p.spec.Template != nil {
		template = p.spec.Template.Labels
	}
	if is := p.spec.Rules; is.Active == nil && is.Ready == nil && is.NoneEnds() { // nearly always; this looks at the conditions once
		return status.CountPods(pods, template, p.spec.MinReadySeconds, p.Now)
	}
	rules, _ := any(p.rules).(status.Rules[*corev1.Pod])
	labels := object.ListLabels(template)
	rules.FullyLabeled = func(c *corev1.Pod) bool { return labels.In(c.Labels) }
	rules.Available = func(c *corev1.Pod) bool { return status.IsPodAvailable(c, p.spec.MinReadySeconds, p.Now) }
	return status.Count(pods, rules)
}

// staysActive reports whether a child is a replica by the Kind's own rules even while it is being
// deleted. By the rules of package replicas, no such child is.
func (p *pass[O, C]) staysActive(c C) bool {
	if p.spec.Rules.Active == nil {
		return false
	}
	deleted, ok := c.DeepCopyObject().(C)
	if !ok {
		return false
	}
	deleted.SetDeletionTimestamp(&metav1.Time{Time: p.Now})
	return p.rules.Active(deleted)
}
