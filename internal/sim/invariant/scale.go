// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// scaling judges the plan of a pass.
func (w *watcher) scaling(owned []*corev1.Pod) {
	pass := w.inside.Passing
	burst := w.checker.BurstReplicas
	if burst == 0 {
		burst = replicas.DefaultBurstReplicas
	}
	// create == 0 || delete == 0, and max(create, delete) <= burst.
	if create, remove := pass.Scale.Create, len(pass.Scale.Delete); create > 0 && remove > 0 || max(create, remove) > burst {
		w.fail(Plan, "%s creates %d and deletes %d pods in one pass, with a burst of %d", pass.Owner.Name, create, remove, burst)
	}
	for _, p := range owned {
		if !isActive(p) {
			w.fail(Plan, "%s counts %s, which is not active", pass.Owner.Name, p.Name)
		}
	}
	for _, v := range slices.Concat(pass.Scale.Delete, pass.Scale.Discard) {
		w.victims[v.Object.Name] = v.Object.UID
	}
	w.ranked(owned)
}

// listen wraps the event handlers of a controller.
func (w *watcher) listen() {
	// The watcher sees pod events before the controller does, so the controller knows nothing that the watcher does
	// not. It sees owner events after the controller, which must then have forgotten an owner that is gone.
	pods := w.controller.View.ChildWatch
	added, updated, deleted := pods.OnAdd, pods.OnUpdate, pods.OnDelete
	sets := w.controller.View.OwnerWatch
	changed, ended := sets.OnUpdate, sets.OnDelete
	sets.OnUpdate = func(old, obj any) error {
		defer w.ends(old, obj)
		return changed(old, obj)
	}
	sets.OnDelete = func(obj any) error {
		defer w.ends(obj, nil)
		return ended(obj)
	}
	pods.OnAdd = func(obj any) error {
		w.shown(obj)
		return added(obj)
	}
	pods.OnUpdate = func(old, obj any) error {
		w.turns(old)
		w.shown(obj)
		return updated(old, obj)
	}
	pods.OnDelete = func(obj any) error {
		w.turns(obj)
		w.shown(obj)
		return deleted(obj)
	}
}

// started checks that a pass expects only the effects of calls that were sent.
func (w *watcher) started(pass podPass) {
	// The event of a call that was not sent never arrives, so the next pass would wait in vain.
	creations, deletions := w.ledgers().Ledger(expectations.KeyOf(pass.Owner)).Awaited()
	for _, v := range pass.Scale.Delete {
		if uid := v.Object.UID; slices.Contains(deletions, uid) && w.checker.isLive(uid) {
			w.fail(Expecting, "%s waits for the end of %s, whose deletion has not begun", pass.Owner.Name, v.Object.Name)
		}
	}
	for _, name := range pass.Scale.Names {
		if slices.Contains(creations, name) && w.named[name] == "" {
			w.fail(Expecting, "%s waits for %s, whose creation did not succeed", pass.Owner.Name, name)
		}
	}
}

// turns keeps the state of a pod as the current pass began with it, before an event changes it.
func (w *watcher) turns(old any) {
	if t, ok := old.(replicastest.Tombstone); ok {
		old = t.Obj
	}
	if p, ok := old.(*corev1.Pod); ok && w.inside.Passing != nil && w.turned[p.UID] == nil && !w.fresh[p.UID] {
		p = p.DeepCopy()
		// The last state of a deleted pod has a deletionTimestamp, but the pass saw an active pod.
		p.DeletionTimestamp = nil
		w.turned[p.UID] = p
	}
}

// shown is called when an event delivers a pod, or the last state of a deleted one.
func (w *watcher) shown(obj any) {
	if p, ok := obj.(*corev1.Pod); ok {
		w.arrives(p)
		if w.inside.Passing != nil {
			w.fresh[p.UID] = true
		}
	}
}

func uidOf(obj any) types.UID {
	if p, ok := obj.(metav1.Object); ok {
		return p.GetUID()
	}
	return ""
}

func controllerOf(p *corev1.Pod) types.UID {
	if p == nil {
		return ""
	}
	for _, ref := range p.OwnerReferences {
		if ref.Controller != nil && *ref.Controller {
			return ref.UID
		}
	}
	return ""
}

func isActive(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
}

func isReady(p *corev1.Pod) bool { return readySince(p) != nil }

// readySince returns the time at which a pod became ready, or nil.
func readySince(p *corev1.Pod) *time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
	}
	return nil
}
