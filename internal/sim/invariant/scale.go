package invariant

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim"
	"github.com/replicakit/replicakit/replicas"
)

// beforeScale judges what a pass is about to create or delete.
func (w *watcher) beforeScale(_ context.Context, spec replicas.Spec, owned []*corev1.Pod, scale replicas.Scale) {
	o := w.owner(spec.Owner.GetUID())
	if w.controller.Now().Sub(o.since) <= expectations.DefaultTimeout {
		w.mayAct(o, spec, owned)
	}
	w.wanted(spec, owned, scale)
	w.ranked(spec, owned, scale)
	w.victims, w.acted = nil, true
	for _, v := range scale.Delete {
		w.victims = append(w.victims, v.Object)
	}
	*o = owner{since: w.controller.Now(), created: map[types.UID]bool{}, deleted: map[types.UID]bool{}}
}

// mayAct: what was created and is not yet seen is not created again, and what was
// deleted does not count as being there.
func (w *watcher) mayAct(o *owner, spec replicas.Spec, owned []*corev1.Pod) {
	if unseen := len(o.created); unseen > o.foreign {
		w.fail("%s acts while %d of its creations are not seen, and %d others arrived",
			spec.Owner.GetName(), unseen, o.foreign)
	}
	for _, p := range owned {
		if o.deleted[p.UID] {
			w.fail("%s acts on a view in which %s is active, which it has deleted", spec.Owner.GetName(), p.Name)
		}
	}
}

// wanted: never more is created than is missing, or deleted than is in surplus,
// or any of both than the burst allows.
func (w *watcher) wanted(spec replicas.Spec, owned []*corev1.Pod, scale replicas.Scale) {
	burst := spec.BurstReplicas
	if burst == 0 {
		burst = replicas.DefaultBurstReplicas
	}
	missing := int(spec.Replicas) - len(owned)
	create, remove := min(max(missing, 0), burst), min(max(-missing, 0), burst)
	if scale.Create != create || len(scale.Delete) != remove {
		w.fail("%s wants %d and has %d, but creates %d and deletes %d",
			spec.Owner.GetName(), spec.Replicas, len(owned), scale.Create, len(scale.Delete))
	}
	for _, p := range owned {
		if !isActive(p) {
			w.fail("%s counts %s, which is not active", spec.Owner.GetName(), p.Name)
		}
	}
}

// listen sees what the controller is shown, before it is.
func (w *watcher) listen() {
	pods := w.controller.View.Pods
	added, updated, deleted := pods.OnAdd, pods.OnUpdate, pods.OnDelete
	pods.OnAdd = func(obj any) error {
		w.arrives(obj)
		return added(obj)
	}
	pods.OnUpdate = func(old, obj any) error {
		if uidOf(old) != uidOf(obj) {
			w.arrives(obj)
		}
		defer w.gone(old, obj)
		return updated(old, obj)
	}
	pods.OnDelete = func(obj any) error {
		defer w.gone(obj, nil)
		return deleted(obj)
	}
}

// gone: the end of a pod that was seen to end is not expected any more.
func (w *watcher) gone(old, obj any) {
	if t, ok := old.(sim.Tombstone); ok {
		old = t.Obj
	}
	p, ok := obj.(*corev1.Pod)
	if uid := uidOf(old); !ok || uid != p.UID || p.DeletionTimestamp != nil {
		for _, key := range w.controller.Reconciler.Expectations.OwnersOfDeletion(uid) {
			w.fail("%s still expects the end of %s, which it has seen", key.Name, uid)
		}
	}
}

// arrives counts a pod that is new to the view.
func (w *watcher) arrives(obj any) {
	p, ok := obj.(*corev1.Pod)
	if !ok || controllerOf(p) == "" {
		return
	}
	o := w.owner(controllerOf(p))
	switch {
	case p.DeletionTimestamp != nil: // its end was seen, its creation was not
	case o.created[p.UID]:
		delete(o.created, p.UID)
	default:
		o.foreign++
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

// readySince is when a pod became ready, nil if it is not.
func readySince(p *corev1.Pod) *time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
	}
	return nil
}
