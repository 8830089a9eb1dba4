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

// PodFromTemplate returns the pod to create for owner: copies of the template's
// labels, annotations, finalizers and spec, a controller reference to
// the owner and no other, and the generateName "<owner's name>-", or
// the owner's name alone if that would not be a legal prefix. Everything else of the
// template's metadata is ignored, and the namespace is left to the create
// call. Nothing is shared with the template: the caller may change the pod,
// its GenerateName included.
//
// A template that is nil or has no labels is a *RefusedError.
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

// cloneMap never returns nil: the pod's maps are there to be added to (P2).
func cloneMap(m map[string]string) map[string]string {
	clone := make(map[string]string, len(m))
	maps.Copy(clone, m)
	return clone
}
