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

// longestWait is the maximum time for which a controller may postpone work: the longest error back-off. All holds,
// expectations and delays that the server requests are shorter.
const longestWait = 1000 * time.Second

// nextLook is the maximum time between two looks at a cache that the controller knows to be incomplete.
const nextLook = 5 * time.Second

// nextStatus is the longest time after which a controller writes a status again that another controller overwrites each
// time.
const nextStatus = time.Minute

// passedWait is how long a controller whose cache has no version may still count a pod that is gone, from the moment at
// which the cache shows a change of any pod that is newer than its end.
const passedWait = 10 * time.Second

// mostMissing is how long creations without an answer may hold places after the last failed call. The controller sends
// such a creation again after at most a minute.
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

// note records the result of a pass.
func (w *watcher) note(pass podPass) {
	refused, is := int64(0), (*replicas.RefusedError)(nil)
	if errors.As(pass.Err, &is) {
		refused = pass.Generation
	}
	uid, generation := pass.Owner.UID, pass.Generation
	if generation == 0 || isOwnerOld(pass) && !pass.Observed {
		// The pass did not read the owner, or did not use what it read, so the owner of the pass before still counts.
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

// judgeMissing checks that missing pods are soon created if only creations without an answer stop others.
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
	// now - since <= mostMissing, and since begins again with each failed call. A creation that fails can be sent
	// again, so it holds no place for long once calls succeed.
	if now.Sub(since) > mostMissing {
		w.fail(Missing, "%s has lacked pods for %v, because creations without an answer hold their places", rs.Name, now.Sub(since))
	}
}

// Awake returns an error if an owner in the namespace sleeps: it has not reached its final state, the controller sees
// this, and no pass for the owner is due. If the last pass waited or failed, the next one must be due within
// longestWait. Call Awake between two steps of the world.
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
		// An event that is on its way will wake the controller.
		if !inside.Of[inside.View](view).Synced() || inside.Of[inside.Stream](view.ChildWatch).Pending()+inside.Of[inside.Stream](view.OwnerWatch).Pending() > 0 {
			continue
		}
		// A broken watch may still show objects that a restore has removed.
		if k.truth.epoch > 0 && (inside.Of[inside.Stream](view.ChildWatch).Broken() || inside.Of[inside.Stream](view.OwnerWatch).Broken()) {
			continue
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

// awake checks one owner, as the controller's caches show it.
func (w *watcher) awake(rs *appsv1.ReplicaSet) error {
	key, now := types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}, w.checker.cluster.Clock.Now()
	due, queued := w.inside.Queued(key)
	if queued && !due.After(now) {
		return nil
	}
	pods, last := w.controller.View.ChildWatch.In(rs.Namespace), w.last[key]
	if w.checker.Vetoed(rs) || last.refused == rs.Generation || queued && due.Sub(now) <= w.checker.Delay {
		// Prepare allows nothing, the spec was refused and nothing happens until it changes, or the status may wait for
		// Delay.
		return nil
	}
	why := w.checker.settled(rs, pods, w.inside.Now())
	switch {
	case why == nil:
		delete(w.passing, key)
		return nil
	case w.checker.Skewed && w.checker.settled(rs, pods, now.Add(clocksGoBack)) == nil:
		// A clock that was set back makes pods younger than they were at the last status write, and no event says so.
		return nil
	case w.checker.Skewed && queued && w.checker.settled(rs, pods, last.now) == nil:
		// The wait began before the clock was changed.
		return nil
	case queued && due.Sub(now) <= longestWait && (last.excuse || w.isExpecting(rs) || w.checker.settled(rs, pods, last.now) == nil):
		// due - now <= longestWait, if the last pass waited or failed, or if all was done at the last pass and only
		// time has passed since: a pod has become available.
		return nil
	case queued && due.Sub(now) <= longestUnseen && slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return w.cameBack(p.UID) }):
		// After a restore, a pod is there again that a call did not find, and the controller may believe the call.
		return nil
	case queued && due.Sub(now) <= nextLook && w.asleep() != AsleepUnversioned:
		// The controller knows that its cache lacks something, and looks again.
		return nil
	case queued && due.Sub(now) <= nextStatus && len(w.checker.watchers) > 1:
		// The other controller has overwritten the status.
		return nil
	case !w.seesAll(rs.Namespace), queued && due.Sub(now) <= passedWait && w.asleep() == AsleepUnversioned && !w.hasTime(key, now):
		// It does not see the current state, or has not had the time to notice that a pod is gone. The comparison of
		// the caches with the server takes longest, so it comes last.
		return nil
	case queued:
		return fmt.Errorf("for %v yet, though %w", due.Sub(now), why)
	}
	return why
}

// hasTime reports whether a controller whose cache has no version has had time to notice that a pod which it counts is
// gone.
func (w *watcher) hasTime(key types.NamespacedName, now time.Time) bool {
	newest := uint64(0)
	for _, p := range w.controller.View.ChildWatch.In("") {
		newest = max(newest, versionOf(p))
	}
	told := false
	for uid := range w.unseen() {
		gone, known := w.checker.truth.gone(uid)
		_, is := w.checker.truth.pods[uid]
		// The controller can notice it when its cache shows a pod that is newer than the end of that one, and newer
		// than the last call that showed it. After a restore, the call may have the higher version.
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

// asleep returns the rule that a sleeping owner breaks.
func (w *watcher) asleep() Rule {
	for uid := range w.unseen() {
		// A call has shown the pod, which is gone, and no event will say so, because the cache is newer than its end.
		// So the controller may still count it.
		if _, is := w.checker.truth.pods[uid]; !is && w.passedBy(uid) {
			return w.unversioned(AsleepPassed, AsleepUnversioned)
		}
	}
	return Asleep
}

// clocksGoBack is an upper bound for how far stories set clocks back.
const clocksGoBack = time.Hour

// isExpecting reports whether the controller still expects effects of its calls for an owner.
func (w *watcher) isExpecting(rs *appsv1.ReplicaSet) bool {
	known := w.ledgers().Ledgers()[expectations.KeyOf(rs)]
	if known == nil {
		return false
	}
	creations, deletions := known.Awaited()
	// On a changed clock, the pass that handles an expired expectation may not be due yet.
	return known.Waits(w.inside.Now()) > 0 || len(creations)+len(deletions) > 0 && w.checker.Skewed
}

// seesAll reports whether the caches show the current state of the server.
func (w *watcher) seesAll(namespace string) bool {
	view, cluster := w.controller.View, w.checker.cluster
	return apiequality.Semantic.DeepEqual(view.ChildWatch.In(namespace), cluster.Children(namespace)) &&
		apiequality.Semantic.DeepEqual(view.OwnerWatch.In(namespace), cluster.Owners(namespace))
}
