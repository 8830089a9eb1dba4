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

	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/slowstart"
)

// A victim is a child to delete, with the answer to its deletion.
type victim[C Object] struct {
	replicas.Deletion[C]
	isGone bool  // the child is deleted, does not exist, or no longer belongs to the owner
	err    error // the error of the delete call
}

// deletions holds the state of the deletion step of a pass.
type deletions[O, C Object] struct {
	*pass[O, C]
	answers     []error             // of all calls
	failures    []slowstart.Failure // of the deletions that failed
	metConflict bool
	tells       time.Duration // the length of a hold, if an event reports it
}

// firstDeletions is the maximum size of the first batch of delete calls. Each batch is twice as large as
// the one before, so 500 calls are six batches.
const firstDeletions = 16

// delete deletes the victims in parallel, without slow start (D7). Later passes create and delete nothing
// until the cache shows the deletions (D6, D8).
func (p *pass[O, C]) delete(ctx context.Context, victims []replicas.Deletion[C]) {
	d := &deletions[O, C]{pass: p}
	n := min(firstDeletions, p.opts.MaxParallel)
	if p.ViewWasStale {
		n = len(victims) // a list has just shown them in these versions
	}
	for left := victims; len(left) > 0 && !d.metConflict; n *= 2 {
		// Fifty pods become ready while the cache is a second late, so each of 40 deletions would meet a Conflict. The
		// first ones show it, and the next pass chooses among the pods as they are.
		batch := left[:min(n, len(left))]
		left = left[len(batch):]
		if d.sendBatch(ctx, batch); ctx.Err() != nil {
			break
		}
	}
	if d.metConflict && len(p.Deleted) > 0 {
		p.requeueIn(1)
	}
	err := d.err()
	d.holdAfterDeletions(err)
	if err != nil {
		p.scaleFails(StopsDeletions, err)
		p.fails(p.failure("%w", err))
	}
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

// sendBatch deletes children in parallel. It then looks on the server for the children whose delete call had
// no answer.
func (d *deletions[O, C]) sendBatch(ctx context.Context, batch []replicas.Deletion[C]) {
	start, victims := d.state.known.Start(), make([]*victim[C], len(batch))
	run := slowstart.Run(ctx, len(batch), d.allAtOnce(len(batch)), func(ctx context.Context, i int) error {
		v := &victim[C]{Deletion: batch[i], err: errNoAnswer} // the client may panic
		victims[i] = v
		if v.err = d.askDelete(ctx, start, v.Object, v.Options); v.err == nil {
			d.tellDeleted(v.Deletion) // sent immediately, because the other calls may take a long time
		}
		return nil
	})
	var unanswered []*victim[C]
	for _, v := range victims {
		if v == nil { // the context has ended
			continue
		}
		d.answers = append(d.answers, v.err)
		switch {
		case v.err == nil:
			v.isGone, d.Deleted = true, append(d.Deleted, v.Object)
		case apierrors.IsNotFound(v.err):
			v.isGone = true
		case apierrors.IsConflict(v.err):
			d.holdChanged(v)
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
	for _, v := range victims {
		if v != nil && v.isGone {
			d.state.holds.end(v.Object.GetName(), Conflict)
			d.noteDeleted(v.Deletion)
		}
	}
}

// holdChanged holds back the deletion of a child until the child has another version than the call carried.
func (d *deletions[O, C]) holdChanged(v *victim[C]) {
	d.metConflict = true
	name := v.Object.GetName()
	before := d.state.holds.getOrAdd(Conflict, name).Wait
	h := d.holdCalls(Conflict, name, v.err)
	if h.version = v.Object.GetResourceVersion(); h.Wait >= holdIsTold {
		h.version = "" // a webhook refuses a child that changes each second, so no change ends the hold any more
	}
	if before > 0 {
		d.givesUp(v)
	}
	if before < holdIsTold && h.Wait >= holdIsTold {
		d.tells = h.Wait
	}
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
	for _, v := range victims {
		id := object.ID(v.Object)
		found, there, err := look.find(ctx, nameOf(v.Object))
		switch {
		case err == nil && !there:
			v.isGone = true
			d.recordMissing(look, id)
			d.state.known.Sure(id)
		case err == nil && object.ID(found) != id:
			v.isGone = true
			d.state.known.Gone(look.start, id, d.opts.Now())
			d.state.known.Sure(id)
			d.turnedUp(look.start, found)
		case err == nil && found.GetDeletionTimestamp() != nil:
			v.isGone, d.Deleted = true, append(d.Deleted, v.Object)
			d.state.known.Deleted(id, d.opts.Now())
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
	d.event(corev1.EventTypeWarning, FailedDelete, "Error deleting: "+v.err.Error())
	d.Failed++
	d.failures = append(d.failures, slowstart.Failure{Err: v.err})
	if !apierrors.IsConflict(v.err) && !apierrors.IsInternalError(v.err) && serverDelay([]error{v.err}) == 0 { // these have gates of their own
		d.gate(DeletionRefused, v.Object.GetName(), 0, v.err)
	}
}

// holdAfterDeletions puts all deletions on hold if the server failed, or answered with a Retry-After. A hold
// after a failure ends early when a later deletion succeeds.
func (d *deletions[O, C]) holdAfterDeletions(err error) {
	if told := serverDelay(d.answers); told > 0 {
		if d.holdFor(DeletionRetryAfter, "", told, err); told >= holdIsTold && gateOf(d.standing, DeletionRetryAfter, "") == nil {
			d.tells = told
		}
	}
	if d.tells > 0 {
		d.event(corev1.EventTypeWarning, DeletionsHeld, fmt.Sprintf("Holding deletions for %v: %v", d.tells.Round(time.Millisecond), err))
	}
	if i := slices.IndexFunc(d.answers, apierrors.IsInternalError); i >= 0 {
		d.holdCalls(DeletionFailed, "", d.answers[i])
	} else if slices.ContainsFunc(d.answers, func(err error) bool { return err == nil || apierrors.IsNotFound(err) }) {
		d.state.holds.end("", DeletionFailed)
	}
}
