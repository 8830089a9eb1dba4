// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// Settled returns an error if the namespace is not in its final state. In this state, each ReplicaSet has exactly the
// pods that it wants, and its status is correct. All necessary adoptions and releases have happened, and no controller
// waits for anything.
func (k *Checker) Settled(namespace string) error {
	if k.err != nil {
		return k.err
	}
	for _, w := range k.watchers {
		// A changed cache also breaks other rules, so it is looked for first.
		w.intact()
	}
	pods := k.cluster.Children(namespace)
	for _, rs := range k.cluster.Owners(namespace) {
		if err := k.settled(rs, pods, k.cluster.Clock.Now()); err != nil {
			k.fail(k.unsettled(), "in the end: %s: %v", rs.Name, err)
		}
	}
	for _, w := range k.watchers {
		if err := w.idle(namespace); err != nil {
			k.fail(Unsettled, "in the end: %v", err)
		}
		w.swept(namespace)
	}
	return k.err
}

// unsettled returns the rule that an owner breaks which has not reached its final state.
func (k *Checker) unsettled() Rule {
	for _, w := range k.watchers {
		if w.asleep() == AsleepUnversioned {
			return UnsettledUnversioned
		}
	}
	return Unsettled
}

// swept checks that the controller has deleted all strays of the owners in the namespace.
func (w *watcher) swept(namespace string) {
	if w.checker.truth.epoch > 0 {
		// A restored pod did not exist for a while, so the controller might not know of it.
		return
	}
	for _, rs := range w.checker.cluster.Owners(namespace) {
		for uid, owner := range w.messes {
			p := w.checker.truth.pods[uid]
			if owner != rs.UID || p == nil || p.DeletionTimestamp != nil {
				continue
			}
			if _, ours := replicasOf(rs, slices.Values([]*corev1.Pod{p}))[uid]; !ours {
				w.fail(Strays, "in the end: %s, which was created for %s, still exists", p.Name, rs.Name)
			}
		}
	}
}

// isOthers reports whether a pod belongs to another owner.
func isOthers(p *corev1.Pod, owner types.UID) bool {
	return controllerOf(p) != "" && controllerOf(p) != owner
}

// settled returns an error if an owner is not in its final state. The pods must be all those of the owner's namespace.
func (k *Checker) settled(rs *appsv1.ReplicaSet, pods []*corev1.Pod, now time.Time) error {
	sel, err := selector.ForReplicaSet(rs)
	if err != nil || rs.DeletionTimestamp != nil {
		return err
	}
	want := appsv1.ReplicaSetStatus{ObservedGeneration: rs.Generation}
	terminating := new(int32)
	*replicaset.Terminating(&want) = terminating
	for _, p := range pods {
		matches := sel.Matches(labels.Set(p.Labels))
		switch owner := controllerOf(p); {
		case owner == "" && matches && isActive(p):
			return fmt.Errorf("orphan %s is not adopted", p.Name)
		case owner == rs.UID && !matches && isActive(p):
			return fmt.Errorf("%s is not released", p.Name)
		case owner == rs.UID && isActive(p) && k.mustGo(p) && !k.mustStay(p):
			return fmt.Errorf("%s must go", p.Name)
		case owner == rs.UID:
			count(&want, terminating, rs, p, matches, now)
		}
	}
	if n := int(*rs.Spec.Replicas - want.Replicas); n != 0 && !k.stay(rs, pods) {
		// replicas == wanted, unless all that are too many must stay.
		return fmt.Errorf("%d pods, wanted %d", want.Replicas, *rs.Spec.Replicas)
	}
	if !apiequality.Semantic.DeepEqual(want, rs.Status) {
		return fmt.Errorf("the status is %s, want %s", text(rs.Status), text(want))
	}
	return nil
}

// stay reports whether an owner has too many replicas, which all must stay.
func (k *Checker) stay(rs *appsv1.ReplicaSet, pods []*corev1.Pod) bool {
	left, others := 0, 0
	for _, p := range replicasOf(rs, slices.Values(pods)) {
		if k.mustStay(p) {
			left++
		} else {
			others++
		}
	}
	return left > int(*rs.Spec.Replicas) && others == 0
}

// count adds an owned pod to the counts of a status.
func count(s *appsv1.ReplicaSetStatus, terminating *int32, rs *appsv1.ReplicaSet, p *corev1.Pod, matches bool, now time.Time) {
	if !isActive(p) {
		if matches && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			*terminating++
		}
		return
	}
	s.Replicas++
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	if template.Matches(labels.Set(p.Labels)) {
		s.FullyLabeledReplicas++
	}
	since := readySince(p)
	if since == nil {
		return
	}
	s.ReadyReplicas++
	if rs.Spec.MinReadySeconds == 0 || now.Sub(*since) >= time.Duration(rs.Spec.MinReadySeconds)*time.Second {
		s.AvailableReplicas++
	}
}

func text(s appsv1.ReplicaSetStatus) string {
	terminating := int32(-1)
	if n := *replicaset.Terminating(&s); n != nil {
		terminating = *n
	}
	return fmt.Sprintf("generation %d: %d replicas, %d labeled, %d ready, %d available, %d terminating, conditions %v",
		s.ObservedGeneration, s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, terminating, s.Conditions)
}

// idle returns an error if the caches do not show the current state, or if the controller still waits for events.
func (w *watcher) idle(namespace string) error {
	view := w.controller.View
	if n := inside.Of[inside.Stream](view.ChildWatch).Pending() + inside.Of[inside.Stream](view.OwnerWatch).Pending(); n > 0 || inside.Of[inside.Stream](view.ChildWatch).Broken() || inside.Of[inside.Stream](view.OwnerWatch).Broken() {
		return fmt.Errorf("%d events have not arrived, or a watch is broken", n)
	}
	if !apiequality.Semantic.DeepEqual(view.ChildWatch.In(namespace), w.checker.cluster.Children(namespace)) {
		return fmt.Errorf("the cache of pods differs from the server")
	}
	for key, known := range w.ledgers().Ledgers() {
		if known.Waits(w.inside.Now()) > 0 {
			return fmt.Errorf("%s (%s) still waits for the cache", key.Name, key.UID)
		}
	}
	return nil
}

func (w *watcher) ledgers() inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]] {
	return inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]]](w.inside.Ledgers)
}
