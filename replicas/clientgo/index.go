package clientgo

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas"
)

// Names and keys of the indexes are those of Kubernetes' controllers, so that
// both can share an informer.
const (
	podIndexName   = "podController" // Z7
	ownerIndexName = "controllerUID" // L1
)

// podKey is where the pods of a controller are indexed, or the orphans of the
// namespace for a nil reference.
func podKey(namespace string, ref *metav1.OwnerReference) string {
	if ref == nil {
		return namespace
	}
	return namespace + "/" + ref.Kind + "/" + ref.Name + "/" + string(ref.UID)
}

func indexPod(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	return []string{podKey(pod.Namespace, metav1.GetControllerOfNoCopy(pod))}, nil
}

// indexOwner indexes an owner by the UID of its own controller.
func indexOwner(obj any) ([]string, error) {
	owner, ok := obj.(metav1.Object)
	if !ok {
		return nil, nil
	}
	ref := metav1.GetControllerOfNoCopy(owner)
	if ref == nil {
		return nil, nil
	}
	return []string{string(ref.UID)}, nil
}

// addIndex adds an index to the informer and returns its name. An index of that
// name is shared if it gives every probe the same keys; else it is somebody
// else's, and ours goes under a name of its own.
func addIndex(informer cache.SharedIndexInformer, name string, index cache.IndexFunc, probes ...any) (string, error) {
	existing, exists := informer.GetIndexer().GetIndexers()[name]
	switch {
	case !exists:
		return name, informer.AddIndexers(cache.Indexers{name: index})
	case !slices.ContainsFunc(probes, func(probe any) bool { return !sameKeys(existing, index, probe) }):
		return name, nil
	}
	return addIndex(informer, "replicakit."+name, index, probes...)
}

func sameKeys(a, b cache.IndexFunc, probe any) bool {
	aKeys, aErr := a(probe)
	bKeys, bErr := b(probe)
	return aErr == nil && bErr == nil && slices.Equal(aKeys, bKeys)
}

// podProbes are the kinds of pods that an index may treat differently: one that
// has a controller, an orphan, and an orphan that others refer to.
func podProbes() []any {
	plain := probeMeta()
	plain.OwnerReferences[0].Controller = nil
	return []any{
		&corev1.Pod{ObjectMeta: probeMeta()},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "namespace"}},
		&corev1.Pod{ObjectMeta: plain},
	}
}

// probeMeta belongs to a controller, so that each of the indexes has a key for
// it.
func probeMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:       "namespace",
		OwnerReferences: []metav1.OwnerReference{{Kind: "Kind", Name: "name", UID: "uid", Controller: new(true)}},
	}
}

// byIndex returns the objects of an index.
func byIndex[T any](indexer cache.Indexer, index, key string) ([]T, error) {
	found, err := indexer.ByIndex(index, key)
	if err != nil {
		return nil, err
	}
	objects := make([]T, len(found))
	for i, obj := range found {
		object, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("clientgo: index %q holds a %T", index, obj)
		}
		objects[i] = object
	}
	return objects, nil
}

// owned returns the pods whose controller is the owner: by UID, never all pods
// of a namespace.
func (c *Controller) owned(owner metav1.Object) ([]*corev1.Pod, error) {
	ref := metav1.OwnerReference{Kind: c.kind.Kind, Name: owner.GetName(), UID: owner.GetUID()}
	return byIndex[*corev1.Pod](c.pods, c.podIndex, podKey(owner.GetNamespace(), &ref))
}

// orphans returns the orphans of the owners' namespaces.
func (c *Controller) orphans(owners []metav1.Object) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	namespaces := map[string]bool{}
	for _, owner := range owners {
		namespace := owner.GetNamespace()
		if namespaces[namespace] {
			continue
		}
		namespaces[namespace] = true
		orphans, err := byIndex[*corev1.Pod](c.pods, c.podIndex, podKey(namespace, nil))
		if err != nil {
			return nil, err
		}
		pods = append(pods, orphans...)
	}
	return pods, nil
}

// candidates returns the pods that passes for the owners are about: what they own,
// and the orphans of their namespaces (Y6). The cache goes on meanwhile, so
// orphans are read before and after: a pod that is adopted or orphaned between
// two reads is found by one of them.
func (c *Controller) candidates(owners ...metav1.Object) ([]*corev1.Pod, error) {
	before, err := c.orphans(owners)
	if err != nil {
		return nil, err
	}
	var owned []*corev1.Pod
	for _, owner := range owners {
		pods, err := c.owned(owner)
		if err != nil {
			return nil, err
		}
		owned = append(owned, pods...)
	}
	after, err := c.orphans(owners)
	if err != nil {
		return nil, err
	}
	if sameObjects(before, after) {
		return append(owned, after...), nil
	}
	return latest(after, owned, before), nil
}

// sameObjects reports whether both lists hold the same pointers, in any order.
func sameObjects(a, b []*corev1.Pod) bool {
	if len(a) != len(b) {
		return false
	}
	known := make(map[*corev1.Pod]bool, len(a))
	for _, p := range a {
		known[p] = true
	}
	return !slices.ContainsFunc(b, func(p *corev1.Pod) bool { return !known[p] })
}

// latest returns each pod once, as the first of the views has it.
func latest(views ...[]*corev1.Pod) []*corev1.Pod {
	var pods []*corev1.Pod
	known := map[cache.ObjectName]bool{}
	for _, p := range slices.Concat(views...) {
		if name := cache.MetaObjectToName(p); !known[name] {
			known[name] = true
			pods = append(pods, p)
		}
	}
	return pods
}

// related returns the pods of the owner's siblings and its own; see
// replicas.Related.
func (c *Controller) related(ctx context.Context, owner metav1.Object) ([]*corev1.Pod, error) {
	ref := metav1.GetControllerOfNoCopy(owner)
	if ref == nil {
		return nil, nil
	}
	siblings, err := byIndex[metav1.Object](c.owners, c.ownerIndex, string(ref.UID))
	if err != nil {
		return nil, err
	}
	pods, err := c.candidates(siblings...)
	if err != nil {
		return nil, err
	}
	related := replicas.Related(owner, siblings, c.selectorOf, pods)
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Found related "+c.kind.Kind+"s", "replicaSet", klog.KObj(owner), "relatedReplicaSets", klog.KObjSlice(siblings))
	logger.V(4).Info("Found related pods", "kind", c.kind.Kind, "replicaSet", klog.KObj(owner), "pods", klog.KObjSlice(related))
	return related, nil
}

func (c *Controller) selectorOf(owner metav1.Object) (labels.Selector, error) {
	spec, err := c.spec(owner)
	return spec.Selector, err
}
