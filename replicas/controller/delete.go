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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
)

// A deletion is what became of one victim.
type deletion uint8

const (
	undecided deletion = iota // no call was made, or it met a Conflict
	deleted                   // the server has accepted it
	gone                      // there is no such child of ours
	failed                    // an error
)

// deletions is the deletion step of a pass.
//
// A deletion carries the resourceVersion in which its victim was judged, so a child that has
// begun to work or was given away meanwhile stays. But children may change faster than a
// cache follows. After the first Conflict in a pass a live list says which victims are still
// to go, and each of them goes in the version of that list. A second Conflict holds that
// victim alone, so a victim costs two delete calls at most. Calls with a resourceVersion start
// in growing batches, because those that are under way at the first Conflict may be in vain.
type deletions[O, C Object] struct {
	*pass[O, C]
	victims []replicas.Deletion[C] // and by their index:
	is      []deletion
	errs    []error // of the last calls

	refused  []int               // victims whose second call met a Conflict too
	failures []slowstart.Failure // all that went wrong
	wait     time.Duration       // how long live lists are put off
	start    ledger.Moment       // when the last batch of calls, or the last look, began
}

// firstVersioned is how many deletes with a resourceVersion are made at first.
const firstVersioned = 16

// delete deletes the victims at once, without slow start (D7). Later passes wait until the
// cache shows what was deleted (D6, D8).
func (p *pass[O, C]) delete(ctx context.Context, victims []replicas.Deletion[C]) {
	d := &deletions[O, C]{
		pass: p, victims: victims,
		is: make([]deletion, len(victims)), errs: make([]error, len(victims)),
	}
	for i, v := range victims {
		if p.kind.BeforeScale != nil { // the author's step has judged this version
			d.judged(i, v.Object)
		}
	}
	defer func() { // after the lists of the pass, which end waits: later passes wait all the same, as Kubernetes' do
		for i, v := range d.victims {
			if d.is[i] == deleted {
				d.state.known.Deleted(object.ID(v.Object), d.opts.Now())
				d.Deleted = append(d.Deleted, v.Object)
				d.notOfRound(v.Object)
			}
		}
	}()
	if err := d.run(ctx); err != nil {
		p.scaleFails(StopsDeletions, err)
		p.fails(p.failure("%w", err))
	}
}

func (d *deletions[O, C]) run(ctx context.Context) error {
	behind := d.state.behind // as the last pass that deleted left it
	if !behind {
		d.first(ctx)
		behind = slices.ContainsFunc(d.errs, apierrors.IsConflict)
	}
	if behind {
		behind = d.again(ctx)
	}
	err := d.err()
	d.state.behind = behind || len(d.refused) > 0
	d.holdAfterDeletions(behind, err)
	d.holdRefused(err)
	return err
}

// err is all that went wrong; nil if nothing did.
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

// first deletes the victims as our view has them, until there is a Conflict.
func (d *deletions[O, C]) first(ctx context.Context) {
	var plain, versioned []int
	for i, v := range d.victims {
		if carried(v.Options) != "" {
			versioned = append(versioned, i)
		} else {
			plain = append(plain, i)
		}
	}
	d.call(ctx, plain)
	for n := min(firstVersioned, d.opts.MaxParallel); len(versioned) > 0 && !slices.ContainsFunc(d.errs, apierrors.IsConflict); n *= 2 {
		batch := versioned[:min(n, len(versioned))]
		versioned = versioned[len(batch):]
		if d.call(ctx, batch); ctx.Err() != nil {
			return
		}
	}
}

// judged makes a victim go only in the version in which it was judged.
func (d *deletions[O, C]) judged(i int, child C) {
	uid, version := child.GetUID(), child.GetResourceVersion()
	d.victims[i].Object = child
	if uid != "" && version != "" {
		d.victims[i].Options.Preconditions = &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	}
}

// left are the victims that nothing is decided about.
func (d *deletions[O, C]) left() (indices []int) {
	for i, is := range d.is {
		if is == undecided {
			indices = append(indices, i)
		}
	}
	return indices
}

// call makes the delete calls for some of the victims, all at once, and looks what became of those
// that had no answer.
func (d *deletions[O, C]) call(ctx context.Context, some []int) {
	d.start = d.state.known.Start()
	sent := make([]bool, len(some))
	run := slowstart.Run(ctx, len(some), d.all(len(some)), func(ctx context.Context, n int) error {
		i := some[n]
		sent[n], d.errs[i] = true, errNoAnswer
		if d.errs[i] = d.askDelete(ctx, d.start, d.victims[i].Object, d.victims[i].Options); d.errs[i] == nil {
			d.is[i] = deleted
			d.tellDeleted(d.victims[i]) // now, as the other calls may take long
		}
		return nil
	})
	var unanswered []int
	for n, i := range some {
		switch err := d.errs[i]; {
		case !sent[n] || err == nil:
		case apierrors.IsNotFound(err):
			d.is[i] = gone
		case apierrors.IsConflict(err): // again decides
		case hadNoAnswer(err):
			unanswered = append(unanswered, i)
		default:
			d.fails(i)
		}
	}
	if run.Skipped > 0 { // the context has ended
		d.failures = append(d.failures, slowstart.Failure{Err: run.Err})
	}
	d.lookFor(ctx, unanswered)
}

// tellDeleted tells of a child that was deleted: in Kubernetes' words, and why this one if
// a criterion decided that is not Kubernetes'.
func (p *pass[O, C]) tellDeleted(v replicas.Deletion[C]) {
	text := "Deleted " + p.childNoun() + ": " + v.Object.GetName()
	if names := criteria(p.spec.Rules.Order); slices.Contains(names, v.Criterion) && !slices.Contains(criteria(podrank.Kubernetes()), v.Criterion) {
		text += " (" + v.Criterion + ": " + strings.TrimPrefix(v.Explain(), v.Criterion+" ") + ")"
	}
	p.event(corev1.EventTypeNormal, SuccessfulDelete, text)
}

// criteria returns the names of an order's criteria; nil for the zero order.
func criteria[C Object](order podrank.Order[C]) (names []string) {
	for _, c := range order.Criteria() {
		names = append(names, c.Name())
	}
	return names
}

// only returns those of some that nothing is decided about and that f picks.
func (d *deletions[O, C]) only(some []int, f func(i int) bool) []int {
	return slices.DeleteFunc(slices.Clone(some), func(i int) bool { return d.is[i] != undecided || !f(i) })
}

// isGone notes that a victim does not exist any more, though the cache, and maybe a
// live list too, has it.
func (d *deletions[O, C]) isGone(i int) {
	d.is[i] = gone
	d.state.known.Gone(d.start, object.ID(d.victims[i].Object), d.opts.Now())
	d.state.known.Sure(object.ID(d.victims[i].Object))
}

// lookFor decides about victims whose delete may have taken effect, or that are
// there no more. One that is still there could not be deleted.
func (d *deletions[O, C]) lookFor(ctx context.Context, some []int) {
	if len(some) == 0 {
		return
	}
	look := d.looks(ctx, len(some))
	d.start = look.start
	for _, i := range some {
		child := d.victims[i].Object
		found, there, err := look.find(ctx, nameOf(child))
		switch {
		case err == nil && !there:
			d.is[i] = gone
			d.lacks(look, object.ID(child))
			d.state.known.Sure(object.ID(child))
		case err == nil && object.ID(found) != object.ID(child):
			d.isGone(i)
			d.turnedUp(look.start, found)
		case err == nil && found.GetDeletionTimestamp() != nil:
			d.is[i] = deleted
		default:
			if err == nil && !d.shows(found) { // it may be another's by now
				d.believe(look.start, found)
			}
			d.fails(i)
		}
	}
}

// fails gives a victim up for this pass.
func (d *deletions[O, C]) fails(i int) {
	d.is[i] = failed
	d.event(corev1.EventTypeWarning, FailedDelete, "Error deleting: "+d.errs[i].Error())
	d.Failed++
	d.failures = append(d.failures, slowstart.Failure{Err: d.errs[i]})
}

// again deletes what Conflicts left: the children that a live list shows still to
// be ours, matching and active, and no more of them than are too many. It reports
// whether our view was behind, and so may have chosen wrongly.
func (d *deletions[O, C]) again(ctx context.Context) (behind bool) {
	ours, ended, err := d.oursLive(ctx)
	if err != nil {
		d.errs, d.wait = append(d.errs, err), d.lists.retryIn(err)
		d.failures = append(d.failures, slowstart.Failure{Err: fmt.Errorf("listing them live: %w", err)})
		return true
	}
	still, behind := d.stillThere(ours, ended)
	sent := d.sent() // which count as they did for the plan
	for _, c := range sent {
		d.view.spec.DeletionsInFlight = append(d.view.spec.DeletionsInFlight, object.ID(c))
	}
	scale := d.within(slices.Concat(ours, sent), still)
	behind = behind || len(scale.Delete) < len(still.Delete)
	scale, ok := d.author(ctx, ours, scale) // which was asked about an older view
	if !ok {
		return true
	}
	left := idsOf(slices.Concat(scale.Delete, scale.Discard))
	again := slices.DeleteFunc(d.left(), func(i int) bool { return !left.Has(object.ID(d.victims[i].Object)) })
	d.call(ctx, again)
	d.refused = d.only(again, func(i int) bool { return apierrors.IsConflict(d.errs[i]) })
	d.lookFor(ctx, d.refused) // they have changed again, or a webhook does not want them deleted
	return behind
}

// sent are the active victims whose deletion succeeded.
func (d *deletions[O, C]) sent() (sent []C) {
	for i, v := range d.victims {
		if d.is[i] == deleted && d.rules.Active(v.Object) {
			sent = append(sent, v.Object)
		}
	}
	return sent
}

// stillThere returns the undecided victims as a live list has them. It reports whether the list
// shows that one of them need not be deleted.
func (d *deletions[O, C]) stillThere(ours, ended []C) (still replicas.Scale[C], behind bool) {
	live := make(map[types.UID]C, len(ours)+len(ended))
	for _, c := range slices.Concat(ours, ended) {
		live[object.ID(c)] = c
	}
	for _, i := range d.left() {
		wasActive := d.rules.Active(d.victims[i].Object)
		child, ok := live[object.ID(d.victims[i].Object)]
		switch {
		case !ok:
		case carried(d.victims[i].Options) != "", !d.rules.Active(child): // one that has ended goes only as it is
			d.judged(i, child)
		default:
			d.victims[i].Object = child
		}
		switch v := d.victims[i]; {
		case !ok:
			d.is[i], behind = gone, true
			d.state.known.Sure(object.ID(v.Object))
		case !d.rules.Active(child):
			still.Discard = append(still.Discard, v)
		case !wasActive: // it was to be discarded, and counts by now
			behind = true
		default:
			still.Delete = append(still.Delete, v)
		}
	}
	return still, behind
}

// oursLive returns the owner's children that are active and match, from a live list, and
// those that are to be discarded. Those that are being deleted already are left out.
func (d *deletions[O, C]) oursLive(ctx context.Context) (ours, ended []C, err error) {
	children, err := d.listLive(ctx)
	if err != nil {
		return nil, nil, err
	}
	d.sees(children)
	for _, c := range children {
		switch {
		case d.isEnded(c):
			ended = append(ended, c)
		case d.controls(c) && d.snapshot.Rules.MayCount(c) && d.rules.Active(c) && c.GetDeletionTimestamp() == nil:
			ours = append(ours, c)
		}
	}
	return ours, ended, nil
}

// holdAfterDeletions keeps deletions back for a while, whatever events come, if
// our view was behind or the server said when. Otherwise it ends the hold that
// there was.
func (d *deletions[O, C]) holdAfterDeletions(behind bool, err error) {
	var tells time.Duration
	if told := serverDelay(d.errs); told > 0 {
		if d.holdAsTold(DeletionRetryAfter, "", told, err); told >= holdIsTold && find(d.standing, DeletionRetryAfter, "") == nil {
			tells = told
		}
	}
	if i := slices.IndexFunc(d.errs, apierrors.IsInternalError); i >= 0 {
		h := d.state.holds.of(DeletionFailed, "")
		DeletionFailed.grow(&h.Hold, d.opts.Now())
		h.why = d.errs[i]
		d.gate(DeletionFailed, "", h.Wait, h.why)
	} else {
		d.state.holds.end("", DeletionFailed)
	}
	if behind {
		tells = max(tells, d.holds(Conflict, "", "", d.wait, err))
	} else {
		d.state.holds.end("", Conflict)
	}
	if tells > 0 {
		d.event(corev1.EventTypeWarning, DeletionsHeld, d.whyHeld(tells, err))
	}
}

// holdRefused keeps the deletions of those victims back whose second call met a Conflict, and
// ends the holds of the others.
func (d *deletions[O, C]) holdRefused(err error) {
	var tells time.Duration
	for i, v := range d.victims {
		id := object.ID(v.Object)
		if d.is[i] != failed || !slices.Contains(d.refused, i) {
			d.state.holds.end(string(id), ConflictAgain)
			continue
		}
		tells = max(tells, d.holds(ConflictAgain, string(id), v.Object.GetName(), 0, d.errs[i]))
	}
	if tells > 0 {
		d.event(corev1.EventTypeWarning, DeletionsHeld, d.whyHeld(tells, err))
	}
}

// holds makes a hold of deletions last twice as long, at least for a while that lists are put
// off, and returns how long that is if an event is to tell of it.
func (d *deletions[O, C]) holds(reason Reason, key, child string, least time.Duration, why error) (tells time.Duration) {
	h := d.state.holds.of(reason, key)
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
	why := "the " + d.childResource.Resource + " chosen are no longer as the cache has them"
	if err != nil {
		why = err.Error()
	}
	return fmt.Sprintf("Holding deletions for %v: %s", wait.Round(time.Millisecond), why)
}
