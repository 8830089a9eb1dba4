package replicas

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

// A deletion is what became of one victim.
type deletion uint8

const (
	undecided deletion = iota // no call was made, or it met a Conflict
	deleted                   // its event will come
	gone                      // there is no such pod of ours: no event will come
	failed                    // an error
)

// deletions is the deletion step of a pass.
//
// Pods that were ready in our view go by their resourceVersion, so that none is
// deleted that was orphaned or given away meanwhile. But pods may change faster
// than a cache follows, or than a rate limit lets calls through. So the first
// Conflict ends that for the pass: from then on a live list says which victims are
// still ours, and they go by their UID alone. A victim costs two delete calls at
// most. Calls with a resourceVersion start in growing batches: those under way at
// the first Conflict may be in vain.
type deletions struct {
	*pass
	pods []*corev1.Pod // the victims, and by their index:
	is   []deletion
	errs []error

	failures  []slowstart.Failure // all that went wrong
	live      bool                // what is left comes from a live list
	conflicts atomic.Int64
}

// firstVersioned is how many deletes with a resourceVersion are made at first.
const firstVersioned = 16

// delete deletes the victims at once, without slow start (D7). What is expected
// in the end is what was deleted (D6, D8).
func (p *pass) delete(ctx context.Context, victims []Deletion[*corev1.Pod]) error {
	if len(victims) == 0 {
		return nil
	}
	d := &deletions{pass: p, is: make([]deletion, len(victims)), errs: make([]error, len(victims))}
	uids := make([]types.UID, len(victims))
	for i, v := range victims {
		d.pods = append(d.pods, v.Object)
		uids[i] = object.ID(v.Object)
	}
	p.Expectations.Set(p.key, expectations.Changes{Deleting: uids})
	p.remember()
	defer d.settle()
	if p.result.ScaleErr = d.run(ctx); p.result.ScaleErr != nil {
		return p.spec.failure("%w", p.result.ScaleErr)
	}
	return nil
}

// settle expects only what was deleted.
func (d *deletions) settle() {
	d.result.Conflicts = int(d.conflicts.Load())
	var others []types.UID
	for i, pod := range d.pods {
		if d.is[i] == deleted {
			d.result.Deleted = append(d.result.Deleted, pod)
		} else {
			others = append(others, object.ID(pod))
		}
	}
	d.Expectations.Lower(d.key, expectations.Changes{Deleting: others})
}

func (d *deletions) run(ctx context.Context) error {
	behind := d.state.behind // as the last pass that deleted left it
	if !behind {
		d.first(ctx)
		behind = d.conflicts.Load() > 0
	}
	if behind {
		behind = d.again(ctx)
	}
	d.retryAfter = max(d.retryAfter, serverDelay(d.errs))
	err := d.err()
	d.state.behind = behind
	d.holdAfterDeletions(behind, err)
	return err
}

// err is all that went wrong.
func (d *deletions) err() error {
	var errs []error
	for _, f := range d.failures {
		errs = append(errs, f.Err)
	}
	return summarize(slowstart.Result{Failed: d.failures, Err: joined.Errors(errs)})
}

// first deletes the victims as our view has them, until there is a Conflict.
func (d *deletions) first(ctx context.Context) {
	var plain, versioned []int
	for i, pod := range d.pods {
		if needsVersion(pod) {
			versioned = append(versioned, i)
		} else {
			plain = append(plain, i)
		}
	}
	d.call(ctx, plain)
	for n := firstVersioned; len(versioned) > 0 && d.conflicts.Load() == 0; n *= 2 {
		batch := versioned[:min(n, len(versioned))]
		versioned = versioned[len(batch):]
		if d.call(ctx, batch); ctx.Err() != nil {
			return
		}
	}
}

// left are the victims that nothing is decided about.
func (d *deletions) left() (indices []int) {
	for i, is := range d.is {
		if is == undecided {
			indices = append(indices, i)
		}
	}
	return indices
}

// call makes the delete calls for some of the victims.
func (d *deletions) call(ctx context.Context, some []int) { d.each(ctx, some, d.one) }

// each calls f for some of the victims, and keeps what goes wrong.
func (d *deletions) each(ctx context.Context, some []int, f func(context.Context, int) error) {
	run := slowstart.Run(ctx, len(some), d.all(len(some)), func(ctx context.Context, n int) error {
		return f(ctx, some[n])
	})
	d.result.Failed += len(run.Failed)
	d.failures = append(d.failures, run.Failed...)
	if run.Skipped > 0 { // the context has ended
		d.failures = append(d.failures, slowstart.Failure{Err: run.Err})
	}
}

// one makes one delete call. After a Conflict no resourceVersion is sent any
// more: what would need one is left to again.
func (d *deletions) one(ctx context.Context, i int) error {
	pod := d.pods[i]
	versioned := !d.live && needsVersion(pod)
	if versioned && d.conflicts.Load() > 0 {
		return nil
	}
	only := preconditions(pod, versioned)
	left, err := d.Pods.DeletePod(ctx, pod, metav1.DeleteOptions{Preconditions: only})
	d.errs[i] = err
	switch {
	case err == nil:
		d.is[i] = deleted
		d.wrotePod(left)
		d.event(d.spec.Owner, corev1.EventTypeNormal, SuccessfulDelete, "Deleted pod: "+pod.Name)
	case apierrors.IsNotFound(err):
		d.is[i] = gone
	case apierrors.IsConflict(err):
		d.conflicts.Add(1)
	default:
		return d.fail(i)
	}
	return nil
}

// needsVersion reports whether a pod is not to be deleted after it changed: one
// that is ready in our view may have been orphaned.
func needsVersion(pod *corev1.Pod) bool { return pod.ResourceVersion != "" && status.IsPodReady(pod) }

// preconditions keep a delete from meeting another pod of that name, and, with
// the version, a pod that has changed. What the pod does not have, as with fake
// clients, is not asked for.
func preconditions(pod *corev1.Pod, version bool) *metav1.Preconditions {
	var only metav1.Preconditions
	if uid := pod.UID; uid != "" {
		only.UID = &uid
	}
	if v := pod.ResourceVersion; version {
		only.ResourceVersion = &v
	}
	if only == (metav1.Preconditions{}) {
		return nil
	}
	return &only
}

// fail gives a victim up for this pass, and returns why.
func (d *deletions) fail(i int) error {
	d.is[i] = failed
	d.event(d.spec.Owner, corev1.EventTypeWarning, FailedDelete, "Error deleting: "+d.errs[i].Error())
	return fmt.Errorf("unable to delete pods: %w", d.errs[i])
}

// again deletes what Conflicts left: the pods that a live list shows still to be
// ours, matching and active, and no more of them than are too many. It reports
// whether our view was behind, and so may have chosen wrongly.
func (d *deletions) again(ctx context.Context) (behind bool) {
	ours, err := d.listLive(ctx)
	if err != nil {
		d.errs = append(d.errs, err)
		err = fmt.Errorf("unable to delete pods: listing them live: %w", err)
		d.failures = append(d.failures, slowstart.Failure{Err: err})
		return true
	}
	d.live = true
	surplus := len(ours) - int(d.spec.Replicas)
	var again []int
	for _, i := range d.left() {
		switch _, still := ours[object.ID(d.pods[i])]; {
		case !still:
			d.is[i], behind = gone, true
		case len(again) < surplus:
			again = append(again, i)
		default:
			behind = true
		}
	}
	d.call(ctx, again)
	refused := slices.DeleteFunc(again, func(i int) bool { return d.is[i] != undecided || !apierrors.IsConflict(d.errs[i]) })
	d.refused(ctx, refused)
	return behind || len(refused) > 0
}

// listLive returns the owner's pods that are active and match, from a live list.
func (d *deletions) listLive(ctx context.Context) (map[types.UID]struct{}, error) {
	d.result.LiveLists++
	pods, err := d.Pods.ListPods(ctx, d.spec.Owner.GetNamespace(), d.spec.Selector)
	if err != nil {
		return nil, err
	}
	claims, err := d.spec.claims(pods)
	if err != nil {
		return nil, err
	}
	ours := make(map[types.UID]struct{}, len(claims.Owned))
	for _, pod := range claims.Owned {
		ours[object.ID(pod)] = struct{}{}
	}
	return ours, nil
}

// refused decides about Conflicts of deletes that carried nothing but a UID: the
// pod is gone, or somebody, such as a webhook, does not want it deleted.
func (d *deletions) refused(ctx context.Context, some []int) {
	isGone := d.isGone
	if len(some) > fewGets {
		ours, err := d.listLive(ctx)
		isGone = func(_ context.Context, pod *corev1.Pod) bool {
			_, still := ours[object.ID(pod)]
			return err == nil && !still
		}
	}
	d.each(ctx, some, func(ctx context.Context, i int) error {
		if isGone(ctx, d.pods[i]) {
			d.is[i] = gone
			return nil
		}
		return d.fail(i)
	})
}

// fewGets is how many pods are read one by one: for more, a list is cheaper.
const fewGets = 3

func (d *deletions) isGone(ctx context.Context, pod *corev1.Pod) bool {
	found, err := d.Pods.GetPod(ctx, pod.Namespace, pod.Name)
	return apierrors.IsNotFound(err) || err == nil && found != nil && object.ID(found) != object.ID(pod)
}

// holdAfterDeletions keeps deletions back for a while, whatever events come, if
// our view was behind or the server said when. Otherwise it ends the hold that
// there was.
func (d *deletions) holdAfterDeletions(behind bool, err error) {
	h := &d.state.deletions
	if !behind && d.retryAfter == 0 {
		*h = hold{}
		return
	}
	before := h.wait
	h.double(d.now(), conflictHoldFirst, conflictHoldLast)
	h.wait = max(h.wait, d.retryAfter)
	d.retryAfter = h.wait
	d.result.Waiting = true
	d.comeBack(h.wait)
	if before < holdIsTold && h.wait >= holdIsTold {
		d.event(d.spec.Owner, corev1.EventTypeWarning, DeletionsHeld, d.whyHeld(err))
	}
}

func (d *deletions) whyHeld(err error) string {
	why := "the pods chosen are no longer as the cache has them"
	if err != nil {
		why = err.Error()
	}
	return fmt.Sprintf("Holding deletions for %v: %s", d.state.deletions.wait.Round(time.Millisecond), why)
}
