// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/slowrank"
	"github.com/replicakit/replicakit/replicas"
)

// ranked: the victims are the first in the order of all owned pods, found here by
// comparing pod by pod, criterion by criterion. Only those may go before them whose
// deletion was tried already, and may yet take effect. Those that a pass has chosen by its
// view are deleted, as far as a live list shows them too: it is not asked who goes first.
func (w *watcher) ranked(s inside.PodScaling) {
	if len(s.Scale.Delete) == 0 {
		return
	}
	if len(s.Related) == 0 && w.showsRelated(s) {
		w.fail(Plan, "%s deletes and has not looked for the pods of its siblings", s.Owner.Name)
	}
	for _, v := range s.Scale.Delete {
		if w.checker.mustStay(v.Object) {
			w.fail(Ruled, "%s deletes %s, which must stay", s.Owner.Name, v.Object.Name)
		}
	}
	isNew := func(v replicas.Deletion[*corev1.Pod]) bool { return !w.chosen[v.Object.UID] }
	if w.checker.ruled || !slices.ContainsFunc(s.Scale.Delete, isNew) {
		return
	}
	isDoubted := func(p *corev1.Pod) bool { _, is := w.doubted[p.Name]; return is }
	order := slowrank.Sort(slowrank.Ranked(s.Owned, siblings(s)), w.controller.Now())
	for _, v := range s.Scale.Delete {
		w.chosen[v.Object.UID] = true
		if isDoubted(v.Object) {
			order = slices.DeleteFunc(order, func(p slowrank.Pod) bool { return p.UID == v.Object.UID })
			continue
		}
		if v.Object.UID != order[0].UID {
			w.fail(Plan, "%s deletes %s, but %s goes first", s.Owner.Name, v.Object.Name, order[0].Name)
		}
		order = order[1:]
	}
}

// showsRelated reports whether the view has pods that count for co-location: those of
// an owner that has siblings do itself.
func (w *watcher) showsRelated(s inside.PodScaling) bool {
	return metav1.GetControllerOf(s.Owner) != nil && slices.ContainsFunc(s.Owned, func(p *corev1.Pod) bool {
		shown, ok := w.controller.View.ChildWatch.Get(p.Namespace, p.Name)
		return ok && !w.fresh[p.UID] && shown.UID == p.UID && controllerOf(shown) == s.Owner.UID
	})
}

// siblings are the pods that count for co-location, each once.
func siblings(s inside.PodScaling) []*corev1.Pod {
	if len(s.Related) == 0 {
		return nil
	}
	seen := map[types.UID]bool{}
	return slices.DeleteFunc(slices.Concat(s.Owned, s.Related), func(p *corev1.Pod) bool {
		twice := seen[p.UID]
		seen[p.UID] = true
		return twice
	})
}
