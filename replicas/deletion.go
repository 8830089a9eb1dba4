package replicas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
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
// than a cache follows. So the first Conflict ends that for the pass: from then
// on a live list says which victims are still ours, and they go by their UID
// alone. A victim costs two delete calls at most.
type deletions struct {
	*pass
	pods []*corev1.Pod // the victims, and by their index:
	is   []deletion
	errs []error

	live      bool // what is left comes from a live list
	conflicts atomic.Int64
}

// delete deletes the victims at once, without slow start (D7). What is expected
// in the end is what was deleted (D6, D8).
func (p *pass) delete(ctx context.Context, victims []podrank.Victim[*corev1.Pod]) error {
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
	var err, again error
	behind := d.state.deletions.wait > 0 // as the last pass that deleted left it
	if !behind {
		err = d.call(ctx, d.left())
		behind = d.conflicts.Load() > 0
	}
	if behind {
		behind, again = d.again(ctx)
		err = errors.Join(err, again)
	}
	d.retryAfter = max(d.retryAfter, serverDelay(d.errs))
	d.holdAfterDeletions(behind, err)
	return err
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
func (d *deletions) call(ctx context.Context, some []int) error {
	run := slowstart.Run(ctx, len(some), d.all(len(some)), func(ctx context.Context, n int) error {
		return d.one(ctx, some[n])
	})
	d.result.Failed += len(run.Failed)
	return summarize(run)
}

// one makes one delete call. After a Conflict no resourceVersion is sent any
// more: what would need one is left to again.
func (d *deletions) one(ctx context.Context, i int) error {
	pod := d.pods[i]
	only := preconditions(pod, !d.live)
	if d.conflicts.Load() > 0 && only != nil && only.ResourceVersion != nil {
		return nil
	}
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

// preconditions keep a delete from meeting another pod of that name, and a pod
// that was ready in our view from being deleted after it changed: it may have
// been orphaned. What the pod does not have, as with fake clients, is not asked
// for.
func preconditions(pod *corev1.Pod, version bool) *metav1.Preconditions {
	var only metav1.Preconditions
	if uid := pod.UID; uid != "" {
		only.UID = &uid
	}
	if v := pod.ResourceVersion; version && v != "" && status.IsPodReady(pod) {
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
func (d *deletions) again(ctx context.Context) (behind bool, err error) {
	ours, err := d.listLive(ctx)
	if err != nil {
		d.errs = append(d.errs, err)
		return true, fmt.Errorf("unable to delete pods: listing them live: %w", err)
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
	err = d.call(ctx, again)
	refused := slices.DeleteFunc(again, func(i int) bool { return d.is[i] != undecided })
	return behind || len(refused) > 0, errors.Join(err, d.refused(ctx, refused))
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
func (d *deletions) refused(ctx context.Context, some []int) error {
	isGone := d.isGone
	if len(some) > fewGets {
		ours, err := d.listLive(ctx)
		isGone = func(_ context.Context, pod *corev1.Pod) bool {
			_, still := ours[object.ID(pod)]
			return err == nil && !still
		}
	}
	run := slowstart.Run(ctx, len(some), d.all(len(some)), func(ctx context.Context, n int) error {
		i := some[n]
		if isGone(ctx, d.pods[i]) {
			d.is[i] = gone
			return nil
		}
		return d.fail(i)
	})
	d.result.Failed += len(run.Failed)
	return summarize(run)
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
	h.double(d.spec.Now, conflictHoldFirst, conflictHoldLast)
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
