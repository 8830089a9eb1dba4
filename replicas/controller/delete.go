// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
)

// A victim is a child to delete, with the result of the deletion.
type victim[C Object] struct {
	replicas.Deletion[C]
	is     fate
	err    error // the error of the last delete call
	isLast bool  // the victim was chosen for a second and last delete call, after a Conflict
}

type fate uint8

const (
	undecided fate = iota // no call was made, or the call failed with a Conflict
	deleted               // the server has accepted the deletion
	gone                  // the child does not exist, or no longer belongs to the owner
	failed                // the deletion failed
)

// isRefused reports whether the second delete call also failed with a Conflict. Either the child changed
// again, or a webhook rejects its deletion.
func (v *victim[C]) isRefused() bool { return v.isLast && apierrors.IsConflict(v.err) }

// deletions holds the state of the deletion step of a pass.
//
// The preconditions of a delete call contain the resourceVersion that the victim has in the view. If the
// child has changed since then, for example because it became ready, the call fails with a Conflict.
// However, children may change faster than the cache can follow. After the first Conflict in a pass, a live
// list shows which victims must still be deleted. The pass then deletes each of these victims with the
// resourceVersion from the live list. If a deletion fails with a second Conflict, a later pass tries it
// again. Each pass therefore makes at most two delete calls for each victim. The calls are sent in growing
// batches, because many calls at the same time might all fail with a Conflict.
type deletions[O, C Object] struct {
	*pass[O, C]
	planned  replicas.Scale[C] // the victims, and the children that later passes delete
	victims  []*victim[C]
	failures []slowstart.Failure // all errors
	wait     time.Duration       // how long live lists are held back
	start    ledger.Moment       // when the last batch of calls or reads began
}

// firstDeletions is the maximum size of the first batch of delete calls. Each batch is twice as large as
// the one before, so 500 calls are six batches.
const firstDeletions = 16

// delete deletes the victims in parallel, without slow start (D7). Later passes create and delete nothing
// until the cache shows the deletions (D6, D8). The argument planned may also contain children that later
// passes delete.
func (p *pass[O, C]) delete(ctx context.Context, planned replicas.Scale[C], victims []replicas.Deletion[C]) {
	d := &deletions[O, C]{pass: p, planned: planned}
	for _, deletion := range victims {
		d.victims = append(d.victims, &victim[C]{Deletion: deletion})
	}
	defer func() { // record deletions after the live lists, so that later passes wait until the cache shows the deletions
		for _, v := range d.victims {
			switch v.is {
			case deleted:
				d.state.known.Deleted(object.ID(v.Object), d.opts.Now())
				d.Deleted = append(d.Deleted, v.Object)
				d.noteDeleted(v.Deletion)
			case gone:
				d.noteDeleted(v.Deletion)
			case undecided, failed:
			}
		}
	}()
	if err := d.run(ctx); err != nil {
		p.scaleFails(StopsDeletions, err)
		p.fails(p.failure("%w", err))
	}
}

// run deletes the victims on the basis of the view. After a Conflict, run continues with a live list. If an
// earlier pass has set d.state.behind, run begins with the live list.
func (d *deletions[O, C]) run(ctx context.Context) error {
	behind := false // whether a list has shown that the view was old
	if !d.state.behind {
		d.byView(ctx)
	}
	if d.state.behind || d.metConflict() {
		behind = d.retryAfterConflict(ctx)
	}
	err := d.err()
	d.state.behind = behind || len(d.victimsWhere((*victim[C]).isRefused)) > 0
	d.holdAfterDeletions(behind, err)
	d.holdRefused(err)
	return err
}

// victimsWhere returns the victims for which f returns true.
func (d *deletions[O, C]) victimsWhere(f func(v *victim[C]) bool) []*victim[C] {
	return filter(d.victims, f)
}

func (d *deletions[O, C]) metConflict() bool {
	return slices.ContainsFunc(d.victims, func(v *victim[C]) bool { return apierrors.IsConflict(v.err) })
}

// err returns all failures as one error, or nil if there were none.
func (d *deletions[O, C]) err() error {
	var errs []error
	for _, f := range d.failures {
		errs = append(errs, f.Err)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("unable to delete %s: %w", d.childResource.Resource, summarize(slowstart.Result{Failed: d.failures, Err: joined.Errors(errs)}))
}

// byView deletes the victims on the basis of the view, until a call fails with a Conflict.
func (d *deletions[O, C]) byView(ctx context.Context) {
	left := d.victims
	for n := min(firstDeletions, d.opts.MaxParallel); len(left) > 0 && !d.metConflict(); n *= 2 {
		batch := left[:min(n, len(left))]
		left = left[len(batch):]
		if d.sendBatch(ctx, batch); ctx.Err() != nil {
			return
		}
	}
}

// sendBatch deletes the given victims in parallel. It then looks on the server for the victims whose delete
// call had no answer.
func (d *deletions[O, C]) sendBatch(ctx context.Context, victims []*victim[C]) {
	d.start = d.state.known.Start()
	for _, v := range victims {
		v.err = nil
	}
	run := slowstart.Run(ctx, len(victims), d.allAtOnce(len(victims)), func(ctx context.Context, i int) error {
		v := victims[i]
		v.err = errNoAnswer // the client may panic
		if v.err = d.askDelete(ctx, d.start, v.Object, v.Options); v.err == nil {
			v.is = deleted
			d.tellDeleted(v.Deletion) // sent immediately, because the other calls may take a long time
		}
		return nil
	})
	var unanswered []*victim[C]
	for _, v := range victims {
		switch {
		case v.err == nil || apierrors.IsConflict(v.err): // the method retryAfterConflict handles a Conflict
		case apierrors.IsNotFound(v.err):
			v.is = gone
		case hadNoAnswer(v.err):
			unanswered = append(unanswered, v)
		default:
			d.givesUp(v)
		}
	}
	if run.Skipped > 0 { // the context has ended
		d.failures = append(d.failures, slowstart.Failure{Err: run.Err})
	}
	d.lookFor(ctx, unanswered)
}

// tellDeleted sends the event about a deleted child, with the same message as Kubernetes. If the child was
// chosen by a criterion that Kubernetes does not have, the message also contains this criterion and its
// values.
func (p *pass[O, C]) tellDeleted(v replicas.Deletion[C]) {
	text := "Deleted " + p.childNoun() + ": " + v.Object.GetName()
	if names := criteria(p.spec.Rules.Order); slices.Contains(names, v.Criterion) && !slices.Contains(criteria(podrank.Kubernetes()), v.Criterion) {
		text += " (" + v.Criterion + ": " + strings.TrimPrefix(v.Explain(), v.Criterion+" ") + ")"
	}
	p.event(corev1.EventTypeNormal, SuccessfulDelete, text)
}

// criteria returns the names of the criteria in an Order, or nil if the Order is the zero value.
func criteria[C Object](order podrank.Order[C]) (names []string) {
	for _, c := range order.Criteria() {
		names = append(names, c.Name())
	}
	return names
}

// lookFor checks on the server whether victims still exist, because their deletion may have taken effect.
// If a victim still exists and is not being deleted, its deletion has failed.
func (d *deletions[O, C]) lookFor(ctx context.Context, victims []*victim[C]) {
	if len(victims) == 0 {
		return
	}
	look := d.newLook(ctx, len(victims))
	d.start = look.start
	for _, v := range victims {
		id := object.ID(v.Object)
		found, there, err := look.find(ctx, nameOf(v.Object))
		switch {
		case err == nil && !there:
			v.is = gone
			d.recordMissing(look, id)
			d.state.known.Sure(id)
		case err == nil && object.ID(found) != id:
			v.is = gone
			d.state.known.Gone(look.start, id, d.opts.Now())
			d.state.known.Sure(id)
			d.turnedUp(look.start, found)
		case err == nil && found.GetDeletionTimestamp() != nil:
			v.is = deleted
		default:
			if err == nil && !d.viewHas(found) { // the child may have another owner now
				d.believe(look.start, found)
			}
			d.givesUp(v)
		}
	}
}

// givesUp records and reports that the deletion of a victim failed. This pass does not try the deletion
// again.
func (d *deletions[O, C]) givesUp(v *victim[C]) {
	v.is = failed
	d.event(corev1.EventTypeWarning, FailedDelete, "Error deleting: "+v.err.Error())
	d.Failed++
	d.failures = append(d.failures, slowstart.Failure{Err: v.err})
	if !apierrors.IsConflict(v.err) && !apierrors.IsInternalError(v.err) && serverDelay([]error{v.err}) == 0 { // these have gates of their own
		d.gate(DeletionRefused, v.Object.GetName(), 0, v.err)
	}
}

// retryAfterConflict decides about the victims that remain after a Conflict. It lists the children live,
// and deletes a victim only if the list shows that the deletion is still required. The limits of the plan
// apply again, and Kind.Prepare is called again. The rest of the pass uses the live list as its view.
// retryAfterConflict returns true if the earlier view was old, so that the pass may have chosen the wrong
// victims. It also returns true if the list or Kind.Prepare fails.
func (d *deletions[O, C]) retryAfterConflict(ctx context.Context) (behind bool) {
	ours, ended, err := d.oursLive(ctx)
	if err != nil {
		d.wait = d.lists.retryIn(err)
		d.failures = append(d.failures, slowstart.Failure{Err: fmt.Errorf("listing them live: %w", err)})
		return true
	}
	still, behind := d.stillThere(ours, ended)
	sent := d.deletedActive() // children that this pass has deleted still count toward the limits, as in the plan
	for _, c := range sent {
		d.view.spec.DeletionsInFlight = append(d.view.spec.DeletionsInFlight, object.ID(c))
	}
	scale := d.clampToRoom(slices.Concat(ours, sent), still)
	behind = behind || len(scale.Delete) < len(still.Delete)
	planned := scale
	planned.Delete, planned.Discard = slices.Concat(scale.Delete, d.withoutVictims(d.planned.Delete)), slices.Concat(scale.Discard, d.withoutVictims(d.planned.Discard))
	scale, err = d.callPrepare(ctx, d.newStep(filter(d.view.children, d.isActive), d.terminating()), planned, scale) // Prepare decides again
	if err != nil {
		d.failures = append(d.failures, slowstart.Failure{Err: err})
		return true
	}
	d.tellScaling(ctx, ours, scale)
	left := idsOf(slices.Concat(scale.Delete, scale.Discard))
	last := d.victimsWhere(func(v *victim[C]) bool { return v.is == undecided && left.Has(object.ID(v.Object)) })
	for _, v := range last {
		v.isLast = true
	}
	d.sendBatch(ctx, last)
	d.lookFor(ctx, filter(last, (*victim[C]).isRefused))
	return behind
}

// withoutVictims returns the planned deletions, without the children that no longer exist or are being
// deleted. It also leaves out the victims of this pass, except the victims whose deletion failed.
func (d *deletions[O, C]) withoutVictims(planned []replicas.Deletion[C]) []replicas.Deletion[C] {
	settled, there := sets.New[types.UID](), sets.New[types.UID]()
	for _, v := range d.victimsWhere(func(v *victim[C]) bool { return v.is != failed }) {
		settled.Insert(object.ID(v.Object))
	}
	for _, c := range d.view.children {
		if c.GetDeletionTimestamp() == nil {
			there.Insert(object.ID(c))
		}
	}
	return filter(planned, func(v replicas.Deletion[C]) bool {
		return there.Has(object.ID(v.Object)) && !settled.Has(object.ID(v.Object))
	})
}

// isActive reports whether a child is one of the owner's active children.
func (d *deletions[O, C]) isActive(c C) bool {
	return d.controls(c) && d.snapshot.Rules.MayCount(c) && d.rules.Active(c)
}

func (d *deletions[O, C]) deletedActive() (deletedActive []C) {
	for _, v := range d.victims {
		if v.is == deleted && d.rules.Active(v.Object) {
			deletedActive = append(deletedActive, v.Object)
		}
	}
	return deletedActive
}

// stillThere updates the undecided victims from a live list, and returns those that must still be deleted.
// If some victim no longer has to be deleted, the view was old, and the second result is true.
func (d *deletions[O, C]) stillThere(ours, ended []C) (still replicas.Scale[C], behind bool) {
	live := make(map[types.UID]C, len(ours)+len(ended))
	for _, c := range slices.Concat(ours, ended) {
		live[object.ID(c)] = c
	}
	for _, v := range d.victims {
		if v.is != undecided {
			continue
		}
		child, ok := live[object.ID(v.Object)]
		if !ok {
			v.is, behind = gone, true
			d.state.known.Sure(object.ID(v.Object))
			continue
		}
		wasActive, isActive := d.rules.Active(v.Object), d.rules.Active(child)
		v.Object, v.Options = child, d.spec.DeleteOptionsFor(child)
		switch {
		case !isActive:
			still.Discard = append(still.Discard, v.Deletion)
		case !wasActive: // the plan discards the child, but the child is active now
			behind = true
		default:
			still.Delete = append(still.Delete, v.Deletion)
		}
	}
	return still, behind
}

// oursLive lists the children live. It returns the owner's active children that match the selector, and the
// children to discard. Children that are already being deleted are left out.
func (d *deletions[O, C]) oursLive(ctx context.Context) (ours, ended []C, err error) {
	children, err := d.listLive(ctx)
	if err != nil {
		return nil, nil, err
	}
	d.setChildren(children)
	for _, c := range children {
		switch {
		case d.isEnded(c):
			ended = append(ended, c)
		case d.isActive(c) && c.GetDeletionTimestamp() == nil:
			ours = append(ours, c)
		}
	}
	return ours, ended, nil
}

// holdAfterDeletions puts deletions on hold if the view was old, if the server failed, or if the server
// answered with a Retry-After. Watch events do not end these holds. If later deletions succeed, a hold ends
// early, except the hold after a Retry-After.
func (d *deletions[O, C]) holdAfterDeletions(behind bool, err error) {
	var tells time.Duration
	var errs []error
	for _, v := range d.victims {
		errs = append(errs, v.err)
	}
	if told := serverDelay(errs); told > 0 {
		if d.holdFor(DeletionRetryAfter, "", told, err); told >= holdIsTold && gateOf(d.standing, DeletionRetryAfter, "") == nil {
			tells = told
		}
	}
	if i := slices.IndexFunc(errs, apierrors.IsInternalError); i >= 0 {
		h := d.state.holds.getOrAdd(DeletionFailed, "")
		DeletionFailed.grow(&h.Hold, d.opts.Now())
		h.why = errs[i]
		d.gate(DeletionFailed, "", h.Wait, h.why)
	} else if slices.ContainsFunc(d.victims, func(v *victim[C]) bool { return v.is == deleted || v.is == gone }) {
		d.state.holds.end("", DeletionFailed)
	}
	if behind {
		tells = max(tells, d.growHold(Conflict, "", "", d.wait, err))
	} else {
		d.state.holds.end("", Conflict)
	}
	if tells > 0 {
		d.event(corev1.EventTypeWarning, DeletionsHeld, d.whyHeld(tells, err))
	}
}

// holdRefused holds back the deletion of each victim if its delete call after the live list failed with a
// Conflict. For all other victims, holdRefused ends the ConflictAgain holds of earlier passes.
func (d *deletions[O, C]) holdRefused(err error) {
	var tells time.Duration
	for _, v := range d.victims {
		id := string(object.ID(v.Object))
		if v.is != failed || !v.isRefused() {
			d.state.holds.end(id, ConflictAgain)
			continue
		}
		tells = max(tells, d.growHold(ConflictAgain, id, v.Object.GetName(), 0, v.err))
	}
	if tells > 0 {
		d.event(corev1.EventTypeWarning, DeletionsHeld, d.whyHeld(tells, err))
	}
}

// growHold doubles the length of a hold on deletions. The new length is at least the given minimum. If an
// event must report the hold, growHold returns the new length. Otherwise, it returns 0.
func (d *deletions[O, C]) growHold(reason Reason, key, child string, least time.Duration, why error) (tells time.Duration) {
	h := d.state.holds.getOrAdd(reason, key)
	before := h.Wait
	reason.grow(&h.Hold, d.opts.Now())
	h.Wait, h.why = max(h.Wait, least), why
	d.gate(reason, child, h.Wait, nil)
	d.retryIn(h.Wait)
	if before < holdIsTold && h.Wait >= holdIsTold {
		return h.Wait
	}
	return 0
}

func (d *deletions[O, C]) whyHeld(wait time.Duration, err error) string {
	why := "the cache was behind when the " + d.childResource.Resource + " to delete were chosen"
	if err != nil {
		why = err.Error()
	}
	return fmt.Sprintf("Holding deletions for %v: %s", wait.Round(time.Millisecond), why)
}
