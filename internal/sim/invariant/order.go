// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/replicas"
)

// ranked checks that a pass deletes the pods that come first in the deletion order, which slowrank computes in the
// simplest way.
func (w *watcher) ranked(owned []*corev1.Pod) {
	pass, related := w.inside.Passing, w.inside.Related
	if len(pass.Scale.Delete) == 0 {
		return
	}
	if len(related) == 0 && w.showsRelated(pass.Owner, owned) {
		w.fail(Plan, "%s deletes and has not looked for the pods of its siblings", pass.Owner.Name)
	}
	for _, v := range pass.Scale.Delete {
		if w.checker.mustStay(v.Object) {
			w.fail(Ruled, "%s deletes %s, which must stay", pass.Owner.Name, v.Object.Name)
		}
	}
	// A pass that plans again after its live list still deletes what it had chosen before, although the order is
	// another now.
	isNew := func(v replicas.Deletion[*corev1.Pod]) bool { return !w.chosen[v.Object.UID] }
	if w.checker.ruled || w.checker.ReadyWithin > 0 || !slices.ContainsFunc(pass.Scale.Delete, isNew) {
		return
	}
	isDoubted := func(p *corev1.Pod) bool { _, is := w.doubted[p.Name]; return is }
	order := slowrank.Sort(slowrank.Ranked(owned, siblings(owned, related)), w.inside.Now())
	order = slices.DeleteFunc(order, func(p slowrank.Pod) bool {
		// A Conflict holds a pod back, so others may go before it.
		return w.conflicts[p.Name].passes > 0 && !slices.ContainsFunc(pass.Scale.Delete, func(v replicas.Deletion[*corev1.Pod]) bool { return v.Object.UID == p.UID })
	})
	for _, v := range pass.Scale.Delete {
		w.chosen[v.Object.UID] = true
		if isDoubted(v.Object) {
			// Its deletion had no answer and may still take effect. If a pod went that has become cheaper since, both
			// would end.
			order = slices.DeleteFunc(order, func(p slowrank.Pod) bool { return p.UID == v.Object.UID })
			continue
		}
		if v.Object.UID != order[0].UID {
			w.fail(Plan, "%s deletes %s, but %s goes first", pass.Owner.Name, v.Object.Name, order[0].Name)
		}
		order = order[1:]
	}
}

// showsRelated reports whether the view shows pods that count for co-location. The owner's own count if it has a
// controller.
func (w *watcher) showsRelated(rs *appsv1.ReplicaSet, owned []*corev1.Pod) bool {
	return metav1.GetControllerOf(rs) != nil && slices.ContainsFunc(owned, func(p *corev1.Pod) bool {
		shown, ok := w.controller.View.ChildWatch.Get(p.Namespace, p.Name)
		return ok && !w.fresh[p.UID] && shown.UID == p.UID && controllerOf(shown) == rs.UID
	})
}

// siblings merges the owned and the related pods, without duplicates, or returns nil if there are no related pods.
func siblings(owned, related []*corev1.Pod) []*corev1.Pod {
	if len(related) == 0 {
		return nil
	}
	seen := map[types.UID]bool{}
	return slices.DeleteFunc(slices.Concat(owned, related), func(p *corev1.Pod) bool {
		twice := seen[p.UID]
		seen[p.UID] = true
		return twice
	})
}
