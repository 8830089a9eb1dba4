// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// longestWait is the maximum time for which a controller may postpone work. It equals the longest
// error back-off. All holds, all expectations and all delays requested by the server are shorter.
const longestWait = 1000 * time.Second

// nextLook is the maximum time between two cache checks. It applies if the controller knows that
// its cache is incomplete.
const nextLook = 5 * time.Second

// nextStatus is the longest time after which a controller writes a status again that another controller
// overwrites each time.
const nextStatus = time.Minute

// passedWait is the maximum time for which a controller may still count a pod that no longer
// exists. The time begins when the cache contains any pod that was changed after the missing pod
// had stopped being active. The limit applies to caches that report no resourceVersion.
const passedWait = 10 * time.Second

// mostMissing is the maximum time for which creations without an answer may hold places after the last failed
// call. The controller sends such a creation again after at most a minute.
const mostMissing = 90 * time.Second

// A lastPass is the result of the last pass for an owner.
type lastPass struct {
	now    time.Time // the time on the controller's clock
	excuse bool      // the pass waited, a call failed, or a release may have failed
	// refused holds the owner's generation if the controller refused the spec; otherwise it is 0.
	// After a refusal, the controller does nothing for the owner until the generation changes.
	refused int64
	// failed is true if the pass returned an error. The rate limiter then decides when the next pass
	// runs.
	failed bool
	// held is true if creations without an answer hold places, and nothing else stops creations.
	held       bool
	uid        types.UID
	generation int64
}

// note records the result of a pass. If the pass has reported a reason for unfinished work, this
// work is excused.
func (w *watcher) note(pass podPass) {
	refused, is := int64(0), (*replicas.RefusedError)(nil)
	if errors.As(pass.Err, &is) {
		refused = pass.Generation
	}
	uid, generation := pass.Owner.UID, pass.Generation
	if generation == 0 || isOwnerOld(pass) && !pass.Observed { // the pass did not read the owner, or did not use what it read
		uid, generation = w.last[pass.Name].uid, w.last[pass.Name].generation
	}
	w.last[pass.Name] = lastPass{
		uid: uid, generation: generation, failed: pass.Err != nil,
		held:    isHeldByCreations(pass),
		now:     pass.Now,
		refused: refused,
		excuse:  pass.Err != nil || pass.Waiting() || pass.InFlight+gatesOf(pass, controller.AdoptionRefused)+gatesOf(pass, controller.AdoptionUndecided)+gatesOf(pass, controller.ReleaseFailed)+len(pass.Released) > 0,
	}
}

// isHeldByCreations reports whether creations without an answer hold places, and nothing else stops creations.
func isHeldByCreations(pass podPass) (is bool) {
	for _, g := range pass.Gates {
		if g.Stops&controller.StopsCreations != 0 {
			if is = g.Reason == controller.CreationInFlight; !is {
				return false
			}
		}
	}
	return is
}

// judgeMissing checks an owner whose creations are stopped only by creations without an answer. When calls no longer fail,
// these creations can be sent again, so the owner soon gets its missing pods.
func (w *watcher) judgeMissing(rs *appsv1.ReplicaSet) {
	key, now := types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}, w.checker.cluster.Clock.Now()
	if !w.last[key].held || w.last[key].uid != rs.UID || w.checker.Skewed {
		delete(w.missing, key)
		return
	}
	since, is := w.missing[key]
	if !is {
		since = now
	}
	if failed := w.failedAt[rs.UID]; failed.After(since) {
		since = failed
	}
	w.missing[key] = since
	if now.Sub(since) > mostMissing {
		w.fail(Missing, "%s has lacked pods for %v, because creations without an answer hold their places", rs.Name, now.Sub(since))
	}
}

// Awake returns an error if an owner in the namespace has not reached its final state and no pass
// for the owner is due. An owner in this situation is said to sleep. If the controller does not see
// the current state, the owner does not count as sleeping. If the last pass waited or failed, the
// next pass must be due within longestWait. Call Awake between two steps of the world.
func (k *Checker) Awake(namespace string) error {
	if k.err != nil {
		return k.err
	}
	for _, w := range k.watchers {
		view := w.controller.View
		if w.inside.Passing != nil {
			continue
		}
		w.led = w.checker.Leads(w.controller)
		for _, rs := range view.OwnerWatch.In(namespace) {
			w.judgeMissing(rs)
		}
		if inside.Of[inside.Stream](view.ChildWatch).Hung() {
			for _, rs := range view.OwnerWatch.In(namespace) {
				w.blind(rs)
				w.chance(rs)
			}
		}
		if !inside.Of[inside.View](view).Synced() || inside.Of[inside.Stream](view.ChildWatch).Pending()+inside.Of[inside.Stream](view.OwnerWatch).Pending() > 0 {
			continue
		}
		if k.truth.epoch > 0 && (inside.Of[inside.Stream](view.ChildWatch).Broken() || inside.Of[inside.Stream](view.OwnerWatch).Broken()) {
			continue // the caches may still show objects that a restore has removed
		}
		for _, rs := range view.OwnerWatch.In(namespace) {
			if err := w.awake(rs); err != nil {
				w.fail(w.asleep(), "%s sleeps: %v", rs.Name, err)
				return k.err
			}
		}
	}
	return nil
}

// awake checks one owner, based on the controller's caches. The comparison of the caches with the
// server takes longest, and therefore comes last.
func (w *watcher) awake(rs *appsv1.ReplicaSet) error {
	key, now := types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}, w.checker.cluster.Clock.Now()
	due, queued := w.inside.Queued(key)
	if queued && !due.After(now) {
		return nil
	}
	pods, last := w.controller.View.ChildWatch.In(rs.Namespace), w.last[key]
	if w.checker.Vetoed(rs) || last.refused == rs.Generation || queued && due.Sub(now) <= w.checker.Delay {
		return nil
	}
	why := w.checker.settled(rs, pods, w.inside.Now())
	switch {
	case why == nil:
		delete(w.passing, key)
		return nil
	case w.checker.Skewed && w.checker.settled(rs, pods, now.Add(clocksGoBack)) == nil:
		return nil
	case w.checker.Skewed && queued && w.checker.settled(rs, pods, last.now) == nil: // the wait began before the clock was changed
		return nil
	case queued && due.Sub(now) <= longestWait && (last.excuse || w.isExpecting(rs) || w.checker.settled(rs, pods, last.now) == nil):
		return nil
	case queued && due.Sub(now) <= longestUnseen && slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return w.cameBack(p.UID) }):
		return nil
	case queued && due.Sub(now) <= nextLook && w.asleep() != AsleepUnversioned:
		return nil
	case queued && due.Sub(now) <= nextStatus && len(w.checker.watchers) > 1:
		return nil
	case !w.seesAll(rs.Namespace), queued && due.Sub(now) <= passedWait && w.asleep() == AsleepUnversioned && !w.hasTime(key, now):
		return nil
	case queued:
		return fmt.Errorf("for %v yet, though %w", due.Sub(now), why)
	}
	return why
}

// hasTime reports whether the controller has had enough time to notice that a pod no longer exists.
// Only pods that the controller still counts are checked. For each missing pod, the Checker has
// recorded two resourceVersions of the server. The server had the first resourceVersion when the
// pod stopped being active. The server had the second resourceVersion at the last call that showed
// the pod. After a restore, the second resourceVersion may be the higher one. The controller's time
// begins when the cache contains any pod with a resourceVersion that is higher than both.
func (w *watcher) hasTime(key types.NamespacedName, now time.Time) bool {
	newest := uint64(0)
	for _, p := range w.controller.View.ChildWatch.In("") {
		newest = max(newest, versionOf(p))
	}
	told := false
	for uid := range w.unseen() {
		gone, known := w.checker.truth.gone(uid)
		_, is := w.checker.truth.pods[uid]
		told = told || known && !is && max(gone.version, w.made[uid], w.told[uid]) < newest
	}
	since, is := w.passing[key]
	switch {
	case !told:
		delete(w.passing, key)
	case !is:
		w.passing[key] = now
	}
	return told && is && now.Sub(since) > passedWait
}

// asleep returns the rule that a sleeping owner breaks. Suppose that a call has shown a pod to the
// controller, and that no event has shown this state of the pod or a later one. If the pod no
// longer exists, and the cache is newer than the moment when the pod stopped being active, later
// events might not show that the pod is gone. The controller might therefore still count the pod.
// In this case, the rule is AsleepPassed or AsleepUnversioned. In all other cases, the rule is
// Asleep.
func (w *watcher) asleep() Rule {
	for uid := range w.unseen() {
		if _, is := w.checker.truth.pods[uid]; !is && w.passedBy(uid) {
			return w.unversioned(AsleepPassed, AsleepUnversioned)
		}
	}
	return Asleep
}

// clocksGoBack is an upper bound for how far stories set clocks back. When a clock is set back,
// pods become younger than they were at the last status write. No event reports this change.
const clocksGoBack = time.Hour

// isExpecting reports whether the controller still expects effects of its calls for an owner. If a
// clock was changed, the result is also true for an expired expectation, because the pass that
// handles the expiry might not be due yet.
func (w *watcher) isExpecting(rs *appsv1.ReplicaSet) bool {
	known := w.ledgers().Ledgers()[expectations.KeyOf(rs)]
	if known == nil {
		return false
	}
	creations, deletions := known.Awaited()
	return known.Waits(w.inside.Now()) > 0 || len(creations)+len(deletions) > 0 && w.checker.Skewed
}

// seesAll reports whether the caches show the current state of the server.
func (w *watcher) seesAll(namespace string) bool {
	view, cluster := w.controller.View, w.checker.cluster
	return apiequality.Semantic.DeepEqual(view.ChildWatch.In(namespace), cluster.Children(namespace)) &&
		apiequality.Semantic.DeepEqual(view.OwnerWatch.In(namespace), cluster.Owners(namespace))
}
