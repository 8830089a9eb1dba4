// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// finalizers maps a deletion policy to the finalizer that keeps an object until the garbage collector has handled its
// dependents.
var finalizers = map[metav1.DeletionPropagation]string{
	metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
	metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
}

// orphaning lists the kinds whose dependents the API server orphans by default.
var orphaning = []schema.GroupVersionKind{
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Version: "v1", Kind: "ReplicationController"},
}

// propagation returns the deletion policy for a child.
func (c *Cluster[O, C]) propagation(child C, opts metav1.DeleteOptions) metav1.DeletionPropagation {
	has, orphans := child.GetFinalizers(), opts.OrphanDependents //nolint:staticcheck // servers still accept it
	// As on the API server, the call decides first, then the finalizers of the child, and then its kind. So a
	// controller that leaves the policy out orphans the pods of a Job, and no one ever deletes them.
	switch {
	case opts.PropagationPolicy != nil:
		return *opts.PropagationPolicy
	case orphans != nil && !*orphans:
		return metav1.DeletePropagationBackground
	case orphans == nil && slices.Contains(has, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	case orphans != nil, slices.Contains(has, metav1.FinalizerOrphanDependents), slices.Contains(orphaning, c.kind.Child):
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationBackground
}

// withPropagation gives an object the garbage collector's finalizer that the policy asks for, and takes off its others.
func withPropagation[T Object[T]](obj T, policy metav1.DeletionPropagation) T {
	want := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), isCollectors)
	if finalizer := finalizers[policy]; finalizer != "" {
		want = append(want, finalizer)
	}
	if slices.Equal(want, obj.GetFinalizers()) {
		return obj
	}
	return changed(obj, func(obj T) { obj.SetFinalizers(want) })
}

// collectLater schedules the garbage collector if there is something to collect.
func (c *Cluster[O, C]) collectLater() {
	if c.beside != nil {
		c.beside.collectLater()
		return
	}
	// A sweep looks at everything, so one that is already due is enough.
	awake := slices.ContainsFunc(c.tasks, func(t task[O, C]) bool { return t.do == sweep })
	if !awake && c.hasGarbage() {
		c.later(c.timing.Garbage, task[O, C]{do: sweep})
	}
}

// seekOwners schedules the garbage collector if an owner of the child does not exist.
func (c *Cluster[O, C]) seekOwners(child C) {
	if len(c.absent(child)) > 0 {
		c.collectLater()
	}
}

func (c *Cluster[O, C]) hasGarbage() bool {
	return slices.ContainsFunc(c.owners.rows, isCollected[O]) || slices.ContainsFunc(c.together(), server.hasOrphans)
}

// hasOrphans reports whether the garbage collector has to change a child.
func (c *Cluster[O, C]) hasOrphans() bool {
	return slices.ContainsFunc(c.children.rows, func(child C) bool {
		return isCollected(child) || child.GetDeletionTimestamp() == nil && len(c.absent(child)) > 0
	})
}

// isCollected reports whether an object that is being deleted waits for the garbage collector.
func isCollected[T metav1.Object](obj T) bool {
	return obj.GetDeletionTimestamp() != nil && slices.ContainsFunc(obj.GetFinalizers(), isCollectors)
}

// isCollectors reports whether a finalizer is the garbage collector's.
func isCollectors(f string) bool {
	return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
}

// collectGarbage runs the garbage collector once over all objects.
func (c *Cluster[O, C]) collectGarbage() {
	for _, owner := range slices.Clone(c.owners.rows) {
		if isCollected(owner) {
			c.collectOwner(owner)
		}
	}
	for _, cluster := range c.together() {
		cluster.collectChildren()
	}
	// An owner may still wait for children that only terminate.
	c.collectLater()
}

func (c *Cluster[O, C]) collectChildren() {
	for _, child := range slices.Clone(c.children.rows) {
		c.collectChild(child)
	}
}

// collectOwner orphans or deletes the children of an owner, and lets the owner go when none are left.
func (c *Cluster[O, C]) collectOwner(owner O) {
	orphan, left := slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents), false
	for _, cluster := range c.together() {
		left = cluster.collectFrom(owner.GetUID(), orphan) || left
	}
	if !left {
		c.owners.write(owner, withPropagation(owner, metav1.DeletePropagationBackground))
	}
}

// collectFrom orphans or deletes the children of an owner, and reports whether any are left.
func (c *Cluster[O, C]) collectFrom(owner types.UID, orphan bool) (left bool) {
	for _, child := range slices.Clone(c.children.rows) {
		switch {
		case !refersTo(child, owner):
		case orphan:
			c.disown(child, owner)
		default:
			// In the foreground, the owner waits even for children that only terminate.
			left = true
			if child.GetDeletionTimestamp() == nil {
				c.deleteChild(child, metav1.DeleteOptions{})
			}
		}
	}
	return left
}

// collectChild handles a child whose owners are gone, or that waits for its dependents.
func (c *Cluster[O, C]) collectChild(child C) {
	absent := c.absent(child)
	switch {
	case isCollected(child):
		// The cluster has no dependents of children, so there is nothing to wait for.
		c.children.write(child, withPropagation(child, metav1.DeletePropagationBackground))
	case len(absent) == 0 || child.GetDeletionTimestamp() != nil:
	case len(absent) == len(child.GetOwnerReferences()):
		c.deleteChild(child, metav1.DeleteOptions{})
	default:
		// The child still belongs to another owner.
		c.disown(child, absent...)
	}
}

// absent returns the UIDs of the child's owners that do not exist.
func (c *Cluster[O, C]) absent(child C) (uids []types.UID) {
	namespace := child.GetNamespace()
	if c.kind.ClusterScoped {
		namespace = ""
	}
	for _, ref := range child.GetOwnerReferences() {
		owner, ok := c.owners.rows.get(namespace, ref.Name)
		// Owners of other kinds are not simulated, so they count as existing. A new owner of the same name is not the
		// child's.
		if ref.Kind == c.owners.kind.Kind && (!ok || owner.GetUID() != ref.UID) {
			uids = append(uids, ref.UID)
		}
	}
	return uids
}

func refersTo(child metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(child.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == uid })
}

func (c *Cluster[O, C]) disown(child C, uids ...types.UID) {
	changed := child.DeepCopy()
	changed.SetOwnerReferences(slices.DeleteFunc(changed.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return slices.Contains(uids, ref.UID)
	}))
	c.children.write(child, changed)
}

// ending is the deletion state of a namespace.
type ending uint8

const (
	_           ending = iota // the namespace exists
	terminating               // nothing can be created in the namespace
	ended                     // the namespace is gone
)

// TerminateNamespace starts the deletion of a namespace. Every namespace exists without being created.
func (c *insideCluster[O, C]) TerminateNamespace(name string) {
	if name == "" {
		return
	}
	c.ending[name] = terminating
	(*Cluster[O, C])(c).later(c.timing.Garbage, task[O, C]{do: empty, name: name})
}

func (c *insideCluster[O, C]) CreateNamespace(name string) bool {
	if c.ending[name] == ended {
		delete(c.ending, name)
	}
	return c.ending[name] == 0
}

// emptyNamespace deletes the objects in a namespace, each second until it is empty.
func (c *Cluster[O, C]) emptyNamespace(name string) {
	owners, children := c.owners.rows.in(name), c.children.rows.in(name)
	for _, owner := range owners {
		if owner.GetDeletionTimestamp() == nil {
			c.owners.delete(owner, 0)
		}
	}
	for _, child := range children {
		if child.GetDeletionTimestamp() == nil {
			c.deleteChild(child, metav1.DeleteOptions{})
		}
	}
	if len(owners)+len(children) == 0 {
		c.ending[name] = ended
		return
	}
	c.later(time.Second, task[O, C]{do: empty, name: name})
}

// checkNamespace returns the error of a creation in a namespace that is gone or being terminated.
func (c *Cluster[O, C]) checkNamespace(resource schema.GroupResource, namespace, name string) error {
	switch c.ending[namespace] {
	case ended:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
	case terminating:
		err := apierrors.NewForbidden(resource, name,
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
		// A controller knows a namespace that ends by this cause. Without it, the answer looks like that of a full
		// quota.
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", namespace),
			Field:   "metadata.namespace",
		})
		return err
	}
	return nil
}
