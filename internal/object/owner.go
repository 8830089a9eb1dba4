// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package object

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// An Owner knows which owner references name one object. If the object has a UID, those with that UID do.
// If it has none, as with a fake client, references in its namespace do that have no UID, and its group,
// kind and name.
type Owner struct {
	uid             types.UID
	namespace, name string
	kind            schema.GroupKind
	groupUnknown    bool
}

// OwnerOf returns the Owner of an object. The kind matters only if obj has no UID. If kind is empty, KindOf
// is used, and the group is not compared if the object does not know its own.
func OwnerOf(obj metav1.Object, kind schema.GroupKind) Owner {
	owner := Owner{uid: obj.GetUID(), namespace: obj.GetNamespace()}
	if owner.uid != "" {
		return owner
	}
	owner.name, owner.kind = obj.GetName(), kind
	if kind.Empty() {
		owner.kind, owner.groupUnknown = KindOf(obj)
	}
	return owner
}

// KindOf returns the object's kind. Objects read through typed clients have none, so then it returns the
// name of their Go type, which is the same word, and the group is unknown.
func KindOf(obj metav1.Object) (kind schema.GroupKind, groupUnknown bool) {
	if o, ok := obj.(runtime.Object); ok {
		if gvk := o.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
			return gvk.GroupKind(), false
		}
	}
	return schema.GroupKind{Kind: reflect.Indirect(reflect.ValueOf(obj)).Type().Name()}, true
}

// IsNamed reports whether ref, an owner reference of child, names the owner.
func (o *Owner) IsNamed(ref *metav1.OwnerReference, child metav1.Object) bool {
	return o.uid == ref.UID && (o.uid != "" || o.isNamedWithoutUID(ref, child))
}

func (o *Owner) isNamedWithoutUID(ref *metav1.OwnerReference, child metav1.Object) bool {
	return ref.Name == o.name && ref.Kind == o.kind.Kind && (o.groupUnknown || GroupOf(ref) == o.kind.Group) && o.Reaches(child)
}

// Reaches reports whether the owner may have the child. A cluster-scoped owner, which has no namespace, may
// have children anywhere (C7).
func (o *Owner) Reaches(child metav1.Object) bool {
	return o.namespace == "" || o.namespace == child.GetNamespace()
}

// GroupOf returns the group of a reference's kind. If the apiVersion is invalid, it returns the apiVersion,
// which is no existing group.
func GroupOf(ref *metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ref.APIVersion
	}
	return gv.Group
}

// Controls reports whether the child's controller reference names the owner.
func (o *Owner) Controls(child metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(child)
	return ref != nil && o.IsNamed(ref, child)
}

// Controllers puts the controller reference of each child into a list. An entry is nil if the child has
// none.
func Controllers[T metav1.Object](children []T, into []*metav1.OwnerReference) {
	if pods, ok := any(children).([]*corev1.Pod); ok { // the usual case: without a call for each
		for i, pod := range pods {
			into[i] = metav1.GetControllerOfNoCopy(&pod.ObjectMeta)
		}
		return
	}
	for i, child := range children {
		into[i] = metav1.GetControllerOfNoCopy(child)
	}
}

// LabelsOf puts the labels of each object into a list.
func LabelsOf[T metav1.Object](objs []T, into []map[string]string) {
	if pods, ok := any(objs).([]*corev1.Pod); ok { // as in Controllers
		for i, pod := range pods {
			into[i] = pod.Labels
		}
		return
	}
	for i, obj := range objs {
		into[i] = obj.GetLabels()
	}
}

// SameController reports whether a and b have the same controller.
func SameController(a, b metav1.Object) bool {
	p, q := metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b)
	if p == nil || q == nil || p.UID != q.UID {
		return false
	}
	return p.UID != "" || p.Name == q.Name && p.Kind == q.Kind && GroupOf(p) == GroupOf(q) && a.GetNamespace() == b.GetNamespace()
}
