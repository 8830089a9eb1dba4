// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
)

// PodFromTemplate returns a new pod for the owner. The pod's labels, annotations, finalizers and
// spec are copies of those in the template. Everything else in the template's metadata is ignored.
// The only owner reference is a controller reference to the owner. The generateName is the owner's
// name followed by "-". If the owner's name followed by "-" is not a legal prefix, the generateName
// is the owner's name alone. The namespace is empty. The pod shares no memory with the template, so
// the caller may change the pod.
//
// If the template is nil or has no labels, the error is a *RefusedError. A nil owner is also an
// error, and so is a kind without Version or Kind.
func PodFromTemplate(template *corev1.PodTemplateSpec, owner metav1.Object, kind schema.GroupVersionKind) (*corev1.Pod, error) {
	switch {
	case object.IsNil(owner):
		return nil, errors.New("replicas: owner is nil")
	case kind.Kind == "" || kind.Version == "":
		return nil, fmt.Errorf("replicas: owner %q: kind %q is incomplete", object.Name(owner), kind)
	case template == nil:
		return nil, refuse(owner, kind, InvalidTemplate, "template is nil")
	case len(template.Labels) == 0:
		return nil, refuse(owner, kind, InvalidTemplate, "template has no labels")
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    generateName(owner.GetName()),
			Labels:          cloneMap(template.Labels),
			Annotations:     cloneMap(template.Annotations),
			Finalizers:      append([]string{}, template.Finalizers...),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: *template.Spec.DeepCopy(),
	}, nil
}

// cloneMap returns a copy of m. The copy is never nil, so that callers can add entries to the maps
// of the pod (P2).
func cloneMap(m map[string]string) map[string]string {
	clone := make(map[string]string, len(m))
	maps.Copy(clone, m)
	return clone
}
