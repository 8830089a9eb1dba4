package replicas

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// Related returns, out of pods, those of the owner's siblings and its own: what
// Spec.Related wants. Siblings are the owners that have the same controller, by
// UID, as the ReplicaSets of one Deployment have (by group, kind and name if there
// is no UID, as with fake clients); the owner is one of them, and
// namespaces do not matter. A pod belongs to the sibling that controls it;
// an orphan belongs to a sibling in its namespace whose selector matches it.
// If sel returns an error, no selector or an empty one, the sibling selects
// nothing; if sel is nil, none does. selector.ForReplicaSet is such a sel.
//
// The result is in the order of pods. An owner without a controller has no
// siblings: nothing is related to it, not even its own pods.
//
// Differs from Kubernetes: a pod that somebody else controls does not count,
// whatever its labels say.
func Related[O metav1.Object](owner metav1.Object, owners []O, sel func(O) (labels.Selector, error), pods []*corev1.Pod) []*corev1.Pod {
	if object.IsNil(owner) {
		return nil
	}
	if metav1.GetControllerOfNoCopy(owner) == nil {
		return nil
	}
	siblings := map[types.UID][]object.Owner{}
	selectors := map[string][]labels.Selector{}
	for _, o := range owners {
		if object.IsNil(o) || !object.SameController(owner, o) {
			continue
		}
		siblings[o.GetUID()] = append(siblings[o.GetUID()], object.OwnerOf(o, schema.GroupKind{}))
		if sel == nil {
			continue
		}
		if s, err := sel(o); err == nil && !object.IsNil(s) && !s.Empty() {
			selectors[o.GetNamespace()] = append(selectors[o.GetNamespace()], s)
		}
	}
	var related []*corev1.Pod
	for _, p := range pods {
		if p != nil && belongs(p, siblings, selectors[p.Namespace]) {
			related = append(related, p)
		}
	}
	return related
}

func belongs(p *corev1.Pod, siblings map[types.UID][]object.Owner, selectors []labels.Selector) bool {
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		return slices.ContainsFunc(siblings[ref.UID], func(o object.Owner) bool { return o.IsNamed(ref, p) })
	}
	return slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(p.Labels)) })
}
