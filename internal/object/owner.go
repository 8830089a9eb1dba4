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

// An Owner checks whether an owner reference refers to a particular object. If the object has a UID, the
// reference must have the same UID. If the object has no UID, as with a fake client, the reference must have
// no UID either. In that case, the reference must have the object's group, kind and name, and the child must
// be in the object's namespace.
type Owner struct {
	uid             types.UID
	namespace, name string
	kind            schema.GroupKind
	groupUnknown    bool
}

// OwnerOf returns the Owner for an object. The parameter kind is used only if obj has no UID. If kind is
// empty, OwnerOf uses the result of KindOf instead. If KindOf does not know the group, the Owner ignores the
// group of a reference.
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

// KindOf returns the object's kind. An object that was read through a typed client does not contain its kind.
// If the object does not contain its kind, KindOf returns the name of the object's Go type, because this name
// equals the kind. The second result reports that the object does not contain its group.
func KindOf(obj metav1.Object) (kind schema.GroupKind, groupUnknown bool) {
	if o, ok := obj.(runtime.Object); ok {
		if gvk := o.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
			return gvk.GroupKind(), gvk.GroupVersion().Empty()
		}
	}
	return schema.GroupKind{Kind: reflect.Indirect(reflect.ValueOf(obj)).Type().Name()}, true
}

// IsNamed reports whether the owner reference ref of the child refers to the owner.
func (o *Owner) IsNamed(ref *metav1.OwnerReference, child metav1.Object) bool {
	return o.uid == ref.UID && (o.uid != "" || o.isNamedWithoutUID(ref, child))
}

func (o *Owner) isNamedWithoutUID(ref *metav1.OwnerReference, child metav1.Object) bool {
	return ref.Name == o.name && ref.Kind == o.kind.Kind && (o.groupUnknown || GroupOf(ref) == o.kind.Group) && o.Reaches(child)
}

// Reaches reports whether the child is in a namespace where the owner may have children. A cluster-scoped
// owner has no namespace, and may have children in every namespace (C7).
func (o *Owner) Reaches(child metav1.Object) bool {
	return o.namespace == "" || o.namespace == child.GetNamespace()
}

// GroupOf returns the API group of an owner reference. If the reference's apiVersion is invalid, GroupOf
// returns the apiVersion itself, which matches no API group.
func GroupOf(ref *metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ref.APIVersion
	}
	return gv.Group
}

// Controls reports whether the child's controller reference refers to the owner.
func (o *Owner) Controls(child metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(child)
	return ref != nil && o.IsNamed(ref, child)
}

// Controllers sets into[i] to the controller reference of children[i], or to nil if this child has no
// controller reference.
func Controllers[T metav1.Object](children []T, into []*metav1.OwnerReference) {
	if pods, ok := any(children).([]*corev1.Pod); ok { // the usual case, which needs no method call for each child
		for i, pod := range pods {
			into[i] = metav1.GetControllerOfNoCopy(&pod.ObjectMeta)
		}
		return
	}
	for i, child := range children {
		into[i] = metav1.GetControllerOfNoCopy(child)
	}
}

// LabelsOf sets into[i] to the labels of objs[i].
func LabelsOf[T metav1.Object](objs []T, into []map[string]string) {
	if pods, ok := any(objs).([]*corev1.Pod); ok { // the usual case, as in Controllers
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
