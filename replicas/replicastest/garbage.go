package replicastest

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// finalizers hold an owner until the garbage collector has dealt with its pods.
var finalizers = map[metav1.DeletionPropagation]string{
	metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
	metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
}

// collectLater wakes the garbage collector if there is something for it.
func (c *Cluster) collectLater() {
	awake := slices.ContainsFunc(c.tasks, func(t task) bool { return t.do == sweep })
	if !awake && c.hasGarbage() {
		c.later(c.timing.Garbage, task{do: sweep})
	}
}

// seekOwners wakes the garbage collector where an owner of a pod does not exist.
func (c *Cluster) seekOwners(p *corev1.Pod) {
	if len(c.absent(p)) > 0 {
		c.collectLater()
	}
}

func (c *Cluster) hasGarbage() bool {
	return slices.ContainsFunc(c.sets.rows, isCollected) ||
		slices.ContainsFunc(c.pods.rows, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && len(c.absent(p)) > 0 })
}

// isCollected reports whether an owner waits for the garbage collector.
func isCollected(rs *appsv1.ReplicaSet) bool {
	return rs.DeletionTimestamp != nil && slices.ContainsFunc(rs.Finalizers, func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

// collectGarbage is one look of the garbage collector at everything.
func (c *Cluster) collectGarbage() {
	for _, rs := range slices.Clone(c.sets.rows) {
		if isCollected(rs) {
			c.collectOwner(rs)
		}
	}
	for _, p := range slices.Clone(c.pods.rows) {
		c.collectPod(p)
	}
	c.collectLater()
}

// collectOwner orphans the pods of an owner or deletes them, and lets the owner
// go when that is done.
func (c *Cluster) collectOwner(rs *appsv1.ReplicaSet) {
	orphan, left := slices.Contains(rs.Finalizers, metav1.FinalizerOrphanDependents), false
	for _, p := range slices.Clone(c.pods.rows) {
		switch {
		case !refersTo(p, rs.UID):
		case orphan:
			c.disown(p, rs.UID)
		default:
			left = true
			if p.DeletionTimestamp == nil {
				c.deletePod(p, metav1.DeleteOptions{})
			}
		}
	}
	if !left {
		changed := rs.DeepCopy()
		changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool {
			return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
		})
		c.sets.write(rs, changed)
	}
}

// collectPod deletes a pod whose owners are all gone; where one is left, the
// references to the others go.
func (c *Cluster) collectPod(p *corev1.Pod) {
	absent := c.absent(p)
	switch {
	case len(absent) == 0 || p.DeletionTimestamp != nil:
	case len(absent) == len(p.OwnerReferences):
		c.deletePod(p, metav1.DeleteOptions{})
	default:
		c.disown(p, absent...)
	}
}

// absent are the owners of a pod that do not exist.
func (c *Cluster) absent(p *corev1.Pod) (uids []types.UID) {
	for _, ref := range p.OwnerReferences {
		rs, ok := c.sets.rows.get(p.Namespace, ref.Name)
		if ref.Kind == replicaSetKind.Kind && (!ok || rs.UID != ref.UID) {
			uids = append(uids, ref.UID)
		}
	}
	return uids
}

func refersTo(p *corev1.Pod, uid types.UID) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == uid })
}

func (c *Cluster) disown(p *corev1.Pod, uids ...types.UID) {
	c.change(p, func(p *corev1.Pod, _ metav1.Time) {
		p.OwnerReferences = slices.DeleteFunc(p.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return slices.Contains(uids, ref.UID)
		})
	})
}

// ending is how far a namespace is on its way out.
type ending uint8

const (
	_           ending = iota // it is there
	terminating               // nothing can be created in it
	ended                     // it is not there
)

// TerminateNamespace deletes a namespace: nothing can be created in it any more,
// and what it holds is deleted. Namespaces that nobody terminated exist.
func (c *Cluster) TerminateNamespace(name string) {
	c.ending[name] = terminating
	c.later(c.timing.Garbage, task{do: empty, name: name})
}

// CreateNamespace makes a namespace that is gone exist again, and reports whether
// it does.
func (c *Cluster) CreateNamespace(name string) bool {
	if c.ending[name] == ended {
		delete(c.ending, name)
	}
	return c.ending[name] == 0
}

// emptyNamespace deletes what a namespace holds, until nothing is left.
func (c *Cluster) emptyNamespace(name string) {
	sets, pods := c.sets.rows.in(name), c.pods.rows.in(name)
	for _, rs := range sets {
		if rs.DeletionTimestamp == nil {
			c.sets.delete(rs, 0)
		}
	}
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			c.deletePod(p, metav1.DeleteOptions{})
		}
	}
	if len(sets)+len(pods) == 0 {
		c.ending[name] = ended
		return
	}
	c.later(time.Second, task{do: empty, name: name})
}

// checkNamespace refuses what would be created where nothing may be.
func (c *Cluster) checkNamespace(resource schema.GroupResource, namespace, name string) error {
	switch c.ending[namespace] {
	case ended:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
	case terminating:
		err := apierrors.NewForbidden(resource, name,
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", namespace),
			Field:   "metadata.namespace",
		})
		return err
	}
	return nil
}
