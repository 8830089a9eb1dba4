// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/slowstart"
)

// A victim is a child to delete, with the answer to its deletion.
type victim[C Object] struct {
	replicas.Deletion[C]
	patched C     // the answer to a mark
	err     error // the error of the call
}

// deletions holds the state of the deletion step of a pass.
type deletions[O, C Object] struct {
	*pass[O, C]
	answers     []error // of all calls
	lost        []*victim[C]
	failures    []error // of the deletions that failed
	metConflict bool
	heldFor     time.Duration // the length of a hold, if an event reports it
}

// delete deletes the victims in parallel, without slow start (D7). Later passes create and delete nothing until the cache
// shows the deletions (D6, D8).
func (p *pass[O, C]) delete(ctx context.Context, victims []replicas.Deletion[C]) *deletions[O, C] {
	// The owner has been read before (ownerAgrees). The cache still wanted two, and a user had set it to five again. A
	// creation in vain can be taken back, but the three deletions could not.
	d := &deletions[O, C]{pass: p}
	n := min(firstDeletions, p.opts.MaxParallel)
	if p.view.isLive { // the victims have just been listed in these versions, so few can have changed
		n = len(victims)
	}
	for left := victims; len(left) > 0 && !d.metConflict; n *= 2 {
		// Fifty pods become ready while the cache is a second late, so each of 40 deletions would meet a Conflict. The
		// first ones show it, and the next pass chooses among the pods as they are.
		batch := left[:min(n, len(left))]
		left = left[len(batch):]
		// All answers of the batch are in the ledger when sendBatch returns, also those that came after a Conflict.
		if d.sendBatch(ctx, batch); ctx.Err() != nil {
			break
		}
	}
	return d
}

// firstDeletions is the maximum size of the first batch of delete calls. Each batch is twice as large as
// the one before, so 500 calls are six batches.
const firstDeletions = 16

// sendBatch deletes children in parallel.
func (d *deletions[O, C]) sendBatch(ctx context.Context, batch []replicas.Deletion[C]) {
	start, victims := d.state.ledger.Start(), make([]*victim[C], len(batch))
	run := slowstart.Run(ctx, len(batch), d.allAtOnce(len(batch)), func(ctx context.Context, i int) error {
		v := &victim[C]{Deletion: batch[i], err: errNoAnswer} // the client may panic
		victims[i] = v
		if v.Mark != nil {
			v.patched, v.err = d.askMark(ctx, v.Mark)
		} else {
			v.err = d.askDelete(ctx, start, v.Object, v.Options)
		}
		if v.err == nil {
			d.sendDeleteEvent(v.Deletion) // sent immediately, because the other calls may take a long time
		}
		return nil
	})
	for _, v := range victims {
		if v == nil { // the context has ended
			continue
		}
		d.answers = append(d.answers, v.err)
		switch {
		case v.err == nil && v.Mark != nil:
			d.concludeMarked(v)
		case v.err == nil:
			d.Deleted = append(d.Deleted, v.Object)
			d.concludeGone(v)
		case errors.Is(v.err, errNotAsShown):
			d.requeueAfter(1) // the ledger has the child as it is
		case errors.Is(v.err, errChangeUndone):
			d.concludeUndone(v)
		case apierrors.IsNotFound(v.err) && (v.Mark == nil || isGone(*v.Mark, v.err)):
			d.concludeGone(v)
		case apierrors.IsConflict(v.err):
			d.holdChanged(v)
		case hadNoAnswer(v.err):
			d.lost = append(d.lost, v)
		default:
			d.concludeFailed(v)
		}
	}
	if run.Skipped > 0 { // the context has ended
		d.failures = append(d.failures, run.Err)
	}
}

// holdChanged holds the deletion of a child that met a Conflict.
func (d *deletions[O, C]) holdChanged(v *victim[C]) {
	d.metConflict = true // ends the deletions of the pass
	name := v.Object.GetName()
	before := d.state.holds.getOrAdd(Conflict, name).Wait
	h := d.holdCalls(Conflict, name, name, v.err)
	if h.version = v.Object.GetResourceVersion(); h.Wait >= shortestHoldWithEvent {
		// A webhook refuses web-a with a Conflict, and web-a changes each second. So its changes no longer end the hold.
		h.version = ""
	}
	if before > 0 { // the first Conflict only says that the cache was late, and the next pass lists
		d.concludeFailed(v)
	}
	if before < shortestHoldWithEvent && h.Wait >= shortestHoldWithEvent {
		d.heldFor = h.Wait
	}
}

// sendDeleteEvent sends the event of Kubernetes about a deleted child, but adds the criterion by which the child was
// chosen if Kubernetes does not have it.
func (p *pass[O, C]) sendDeleteEvent(v replicas.Deletion[C]) {
	if v.Mark != nil {
		p.event(corev1.EventTypeNormal, SuccessfulRetire, "Asked "+v.Object.GetName()+" to leave: "+v.Explain())
		return
	}
	text := "Deleted " + p.childNoun() + ": " + v.Object.GetName()
	if names := criteria(p.spec.Rules.Order); slices.Contains(names, v.Criterion) && !slices.Contains(criteria(podrank.Kubernetes()), v.Criterion) {
		text += " (" + v.Criterion + ": " + strings.TrimPrefix(v.Explain(), v.Criterion+" ") + ")"
	}
	p.event(corev1.EventTypeNormal, SuccessfulDelete, text)
}

func criteria[C Object](order podrank.Order[C]) (names []string) {
	for _, c := range order.Criteria() {
		names = append(names, c.Name())
	}
	return names
}

// conclude decides what became of the deletions without an answer, and reports the errors.
func (d *deletions[O, C]) conclude(found findings[C]) {
	if d == nil {
		return
	}
	for _, v := range d.lost {
		switch f, ok := found[nameOf(v.Object)]; {
		case ok && (!f.there || object.ID(f.child) != object.ID(v.Object)): // gone, and perhaps another one has its name
			d.concludeGone(v)
		case ok && v.Mark != nil && d.leaves(f.child):
			v.patched = f.child
			d.concludeMarked(v)
		case ok && f.child.GetDeletionTimestamp() != nil:
			// The deletion has taken effect, and only its answer was lost. The cache does not show that yet.
			d.state.ledger.Deleted(object.ID(v.Object), d.opts.Now())
			d.Deleted = append(d.Deleted, v.Object)
			d.concludeGone(v)
		default:
			// The child is there, or could not be read. As long as the call may still take effect, the ledger keeps it, and
			// this child goes before any other.
			d.concludeFailed(v)
		}
	}
	var err error
	if len(d.failures) > 0 {
		err = fmt.Errorf("unable to delete %s: %w", d.childResource.Resource, joined.Summary(joined.Errors(d.failures), d.failures))
	}
	if d.holdAfterDeletions(err); err != nil {
		d.addScaleError(StopsDeletions, err)
		d.addError(d.failure("%w", err))
	}
}

func (d *deletions[O, C]) concludeGone(v *victim[C]) {
	d.state.holds.end(v.Object.GetName(), Conflict)
	d.noteDeleted(v.Deletion)
}

func (d *deletions[O, C]) concludeMarked(v *victim[C]) {
	if !d.leaves(v.patched) { // a webhook took the mark off again
		v.err = errChangeUndone
		d.concludeUndone(v)
		return
	}
	d.Retired = append(d.Retired, v.patched)
	d.holdRepeated(v.Object.GetName()) // another client may take the mark off each time
	d.concludeGone(v)
}

func (d *deletions[O, C]) concludeUndone(v *victim[C]) {
	// Each event of a child would bring a pass that marks this one again, and the webhook would take each mark off.
	d.holdUpdates(v.Object.GetName(), v.err, time.Minute, 5*time.Minute)
	d.concludeFailed(v)
}

// concludeFailed reports a deletion that failed, which this pass does not try again.
func (d *deletions[O, C]) concludeFailed(v *victim[C]) {
	d.event(corev1.EventTypeWarning, FailedDelete, "Error deleting: "+v.err.Error())
	d.Failed++
	d.failures = append(d.failures, v.err)
	if !apierrors.IsConflict(v.err) && !apierrors.IsInternalError(v.err) && serverDelay([]error{v.err}) == 0 { // these have gates of their own
		d.gate(DeletionRefused, v.Object.GetName(), 0, v.err)
	}
}

// holdAfterDeletions holds all deletions if the server failed or answered with a Retry-After. The error of the
// deletions, if there is one, is the reason.
func (d *deletions[O, C]) holdAfterDeletions(err error) {
	if delay := serverDelay(d.answers); delay > 0 {
		if d.holdFor(DeletionRetryAfter, "", delay, err); delay >= shortestHoldWithEvent && gateOf(d.Standing, DeletionRetryAfter, "") == nil {
			d.heldFor = delay
		}
	}
	if d.heldFor > 0 {
		d.event(corev1.EventTypeWarning, DeletionsHeld, fmt.Sprintf("Holding deletions for %v: %v", d.heldFor.Round(time.Millisecond), err))
	}
	if i := slices.IndexFunc(d.answers, apierrors.IsInternalError); i >= 0 { // the next deletions would probably fail, too
		d.holdCalls(DeletionFailed, "", "", d.answers[i])
	} else if slices.ContainsFunc(d.answers, func(err error) bool { return err == nil || apierrors.IsNotFound(err) }) {
		d.state.holds.end("", DeletionFailed)
	}
}

// deletePendingStrays deletes the strays that an earlier pass could not delete.
func (p *pass[O, C]) deletePendingStrays(ctx context.Context) {
	pending := slices.Clone(p.state.strays)
	// Without a selector, which a later step refuses, strays cannot be identified.
	if object.IsNil(p.spec.Selector) || len(pending) == 0 || p.held(StrayLeft, "", pending[0].GetName(), "") {
		return
	}
	failed := false
	for _, c := range pending[:min(len(pending), fewStrays)] {
		found, err := p.askChild(ctx, nameOf(c))
		switch {
		case err == nil && object.IsNil(found):
			err = errNoObject
		case apierrors.IsNotFound(err), err == nil && (object.ID(found) != object.ID(c) || !p.isStray(found)):
			p.forgetStray(c) // it is gone, another owner has adopted it, or the selector has changed and matches it
			continue
		case err == nil:
			c = found
		}
		failed = p.dropStray(ctx, c, err) != nil || failed
	}
	if failed {
		return
	}
	if p.state.holds.end("", StrayLeft); len(pending) > fewStrays { // ask for the next pass, because no event of a stray wakes the owner
		p.gate(StrayLeft, pending[fewStrays].GetName(), StrayLeft.row().shortest, nil)
	}
}

// fewStrays is the maximum number of strays that one pass tries to delete.
const fewStrays = 5

// dropStray deletes a stray, unless the read of it failed with err, and holds all strays if it is still there.
func (p *pass[O, C]) dropStray(ctx context.Context, c C, err error) error {
	if err == nil {
		err = p.deleteUnchanged(ctx, c)
	}
	p.forgetStray(c)
	if err == nil {
		return nil
	}
	// Five of seventeen strays had finalizers, and the others were never tried. So this one goes behind them.
	p.state.strays = append(p.state.strays, c)
	h := p.state.holds.getOrAdd(StrayLeft, "")
	if h.Remaining(p.Now) <= 0 { // the first one in this pass
		StrayLeft.grow(&h.Hold, p.opts.Now())
	}
	h.why = err
	p.gate(StrayLeft, c.GetName(), max(h.Wait, serverDelay([]error{err})), err)
	return err
}

// deleteUnchanged deletes a child in the version in which it was judged, and returns nil also if it is gone.
func (p *pass[O, C]) deleteUnchanged(ctx context.Context, c C) error {
	err := p.askDeleteStray(ctx, c, p.spec.DeleteOptionsFor(c))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p *pass[O, C]) forgetStray(c C) {
	p.state.strays = slices.DeleteFunc(p.state.strays, func(s C) bool { return object.ID(s) == object.ID(c) })
}
