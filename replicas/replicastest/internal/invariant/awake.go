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
)

// longestWait is how long a controller may put off work at most, which is the longest error
// back-off. Holds, servers and expectations take less.
const longestWait = 1000 * time.Second

// nextLook is how long a controller may take to look again at a cache that lacks something it
// knows.
const nextLook = 5 * time.Second

// passedWait is how long a controller may take to find that its cache is past a pod that it takes
// to be there, if the cache reports no version.
const passedWait = 10 * time.Second

// A lastPass is the result of the last pass for an owner.
type lastPass struct {
	now    time.Time // of the controller
	excuse bool      // it waits, something failed, or a release may have failed
	// refused is the generation whose spec was refused. Nothing is done until another generation.
	refused int64
	// failed says that the rate limiter decides when the next pass comes.
	failed     bool
	uid        types.UID
	generation int64
}

// note keeps the result of a pass. Only what the pass reported counts as an excuse, because an
// owner is not woken for anything else.
func (w *watcher) note(pass podPass) {
	refused, is := int64(0), (*replicas.RefusedError)(nil)
	if errors.As(pass.Err, &is) {
		refused = pass.Generation
	}
	uid, generation := pass.Owner.UID, pass.Generation
	if generation == 0 || pass.OwnerWasStale && !pass.Observed { // the owner was not read, or the pass did not use it
		uid, generation = w.last[pass.Name].uid, w.last[pass.Name].generation
	}
	w.last[pass.Name] = lastPass{
		uid: uid, generation: generation, failed: pass.Err != nil,
		now:     pass.Now,
		refused: refused,
		excuse:  pass.Err != nil || pass.Waiting() || pass.InFlight+len(pass.AdoptionRejected)+len(pass.AdoptionPending)+len(pass.Released)+len(notReleased(pass)) > 0,
	}
}

// Awake returns an error if an owner of the namespace sleeps although work is left. This is so if a
// controller sees all that there is, its last pass waited for nothing, the owner is not in its
// final state, and no pass for it is due. If the last pass waited or failed, another one must be
// due in not too long a time. Call Awake between two steps of the world.
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
			continue // the caches may hold what a restore has undone, without a sign of it
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

// awake judges one owner as the controller sees it. The truth is compared last, because that takes
// longest.
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
	case w.checker.Skewed && queued && w.checker.settled(rs, pods, last.now) == nil: // it waits by its earlier clock
		return nil
	case queued && due.Sub(now) <= longestWait && (last.excuse || w.isExpecting(rs) || w.checker.settled(rs, pods, last.now) == nil):
		return nil
	case queued && due.Sub(now) <= longestUnseen && slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return w.cameBack(p.UID) }):
		return nil
	case queued && due.Sub(now) <= nextLook && w.asleep() != AsleepUnversioned:
		return nil
	case !w.seesAll(rs.Namespace), queued && due.Sub(now) <= passedWait && w.asleep() == AsleepUnversioned && !w.hasTime(key, now):
		return nil
	case queued:
		return fmt.Errorf("for %v yet, though %w", due.Sub(now), why)
	}
	return why
}

// hasTime reports whether an owner had time enough to find that its cache is past a pod that it
// takes to be there. The time begins with an event that is newer than the end of the pod and than
// what showed the pod. The latter may be newer after a restore.
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

// asleep returns the rule that a sleeping owner breaks. If the cache is past a pod that the
// controller takes to be there, the controller may be unable to notice.
func (w *watcher) asleep() Rule {
	for uid := range w.unseen() {
		if _, is := w.checker.truth.pods[uid]; !is && w.passedBy(uid) {
			return w.unversioned(AsleepPassed, AsleepUnversioned)
		}
	}
	return Asleep
}

// clocksGoBack is more than clocks go back in stories. Pods are then younger than when the status
// was written, and no event reports that.
const clocksGoBack = time.Hour

// isExpecting reports whether an owner waits for what it expects. If clocks jump, the expectation
// may have expired before the pass that was requested for that time.
func (w *watcher) isExpecting(rs *appsv1.ReplicaSet) bool {
	known := w.ledgers().Ledgers()[expectations.KeyOf(rs)]
	if known == nil {
		return false
	}
	creations, deletions := known.Awaited()
	return known.Waits(w.inside.Now()) > 0 || len(creations)+len(deletions) > 0 && w.checker.Skewed
}

// seesAll reports whether the caches hold the truth.
func (w *watcher) seesAll(namespace string) bool {
	view, cluster := w.controller.View, w.checker.cluster
	return apiequality.Semantic.DeepEqual(view.ChildWatch.In(namespace), cluster.Children(namespace)) &&
		apiequality.Semantic.DeepEqual(view.OwnerWatch.In(namespace), cluster.Owners(namespace))
}
