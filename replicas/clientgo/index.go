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
// name is shared if it gives the probe the same keys; else it is somebody
// else's, and ours goes under a name of its own.
func addIndex(informer cache.SharedIndexInformer, name string, index cache.IndexFunc, probe any) (string, error) {
	existing, exists := informer.GetIndexer().GetIndexers()[name]
	switch {
	case !exists:
		return name, informer.AddIndexers(cache.Indexers{name: index})
	case sameKeys(existing, index, probe):
		return name, nil
	}
	return addIndex(informer, "replicakit."+name, index, probe)
}

func sameKeys(a, b cache.IndexFunc, probe any) bool {
	aKeys, aErr := a(probe)
	bKeys, bErr := b(probe)
	return aErr == nil && bErr == nil && slices.Equal(aKeys, bKeys)
}

// probeMeta belongs to a controller, so that each of the indexes has a key for
// it.
var probeMeta = metav1.ObjectMeta{
	Namespace:       "namespace",
	OwnerReferences: []metav1.OwnerReference{{Kind: "Kind", Name: "name", UID: "uid", Controller: new(true)}},
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

func (c *Controller) orphans(namespace string) ([]*corev1.Pod, error) {
	return byIndex[*corev1.Pod](c.pods, c.podIndex, podKey(namespace, nil))
}

// candidates returns the pods that passes for the owners are about: what they own,
// and the orphans of their namespaces (Y6).
func (c *Controller) candidates(owners ...metav1.Object) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	namespaces := map[string]bool{}
	for _, owner := range owners {
		owned, err := c.owned(owner)
		if err != nil {
			return nil, err
		}
		pods = append(pods, owned...)
		if namespace := owner.GetNamespace(); !namespaces[namespace] {
			namespaces[namespace] = true
			orphans, err := c.orphans(namespace)
			if err != nil {
				return nil, err
			}
			pods = append(pods, orphans...)
		}
	}
	return pods, nil
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
