// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// beginning is the default start time of clusters. Pods of NewPod were created then, and have been ready since.
var beginning = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// NewReplicaSet returns a ReplicaSet whose pods have the label app=name. The same Deployment controls all ReplicaSets
// from NewReplicaSet, so they are siblings. The UID is "uid-" followed by the name, until a cluster gives the
// ReplicaSet a new one.
func NewReplicaSet(namespace, name string, replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	controller := true
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Generation: 1,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "shop", UID: "deployment", Controller: &controller,
			}},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name}}},
			},
		},
	}
}

// NewPod returns a pod made from the template of rs, which runs on node-1, and has been ready since the beginning of
// 2026. Its UID is "uid-" followed by its name. A nil rs gives an orphan without labels in the namespace "default".
func NewPod(rs *appsv1.ReplicaSet, name string) *corev1.Pod {
	since := metav1.NewTime(beginning)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault}}
	if rs != nil {
		template := rs.Spec.Template.DeepCopy()
		p.ObjectMeta, p.Spec = template.ObjectMeta, template.Spec
		p = ownedBy(p, rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	}
	p.Name, p.UID, p.ResourceVersion, p.Generation, p.CreationTimestamp = name, types.UID("uid-"+name), "1", 1, since
	p.Spec.NodeName = "node-1"
	becomeReady(p, since)
	return p
}

// ownedBy returns a copy of a child in the owner's namespace that the owner, of this kind, controls. A nil owner gives
// a copy without owners.
func ownedBy[C Object[C]](child C, owner metav1.Object, kind schema.GroupVersionKind) C {
	return changed(child, func(child C) {
		if object.IsNil(owner) {
			child.SetOwnerReferences(nil)
			return
		}
		child.SetNamespace(owner.GetNamespace())
		child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)})
	})
}

// Orphan returns a copy of a child without owner references. An owner may adopt the copy if its selector matches it.
func Orphan[C Object[C]](child C) C {
	return changed(child, func(child C) { child.SetOwnerReferences(nil) })
}

// WithCost returns a copy of a child with the given deletion cost, which is stored in the annotation
// controller.kubernetes.io/pod-deletion-cost.
func WithCost[C Object[C]](child C, cost int32) C {
	return changed(child, func(child C) {
		annotations := child.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[corev1.PodDeletionCost] = strconv.Itoa(int(cost))
		child.SetAnnotations(annotations)
	})
}

// Unready returns a copy of a pod that is not ready, and has never been ready.
func Unready(p *corev1.Pod) *corev1.Pod {
	return changed(p, func(p *corev1.Pod) { becomeUnready(p, p.CreationTimestamp) })
}

// changed returns a copy of an object that the function has changed, or nil for nil.
func changed[T Object[T]](obj T, change func(T)) T {
	if object.IsNil(obj) {
		return obj
	}
	obj = obj.DeepCopy()
	change(obj)
	return obj
}
