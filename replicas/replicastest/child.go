// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// SetQuota limits the number of children in a namespace. Finished pods do not count.
func (c *Cluster[O, C]) SetQuota(namespace string, limit int) { c.quota[namespace] = limit }

// Children returns the children that the server has in a namespace, sorted by namespace and name. "" means all
// namespaces.
func (c *Cluster[O, C]) Children(namespace string) []C { return clone(c.children.rows.in(namespace)) }

// listChildren lists the children that the selector matches. A nil selector matches all.
func (c *Cluster[O, C]) listChildren(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[C], error) {
	if err := ctx.Err(); err != nil {
		return ledger.List[C]{}, err
	}
	items := slices.DeleteFunc(c.Children(namespace), func(child C) bool {
		return !object.IsNil(matching) && !matching.Matches(labels.Set(child.GetLabels()))
	})
	return ledger.List[C]{Items: items, Version: strconv.FormatUint(c.latest(), 10)}, nil
}

// CreateChild stores a new child. A child without a name gets one from its generateName. A pod loses its status, and
// begins in the phase Pending.
func (c *Cluster[O, C]) CreateChild(ctx context.Context, namespace string, child C) (C, error) {
	var none C
	if object.IsNil(child) {
		return none, errNil
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := c.checkNamespace(c.children.resource, namespace, child.GetName()); err != nil {
		return none, err
	}
	child = child.DeepCopy()
	child.SetNamespace(namespace)
	c.life.prepare(child)
	if child.GetName() == "" && child.GetGenerateName() != "" {
		child.SetName(c.newName(namespace, child.GetGenerateName()))
	}
	// As on a server, webhooks that change a child come before those that refuse it. The quota comes last, so a refused
	// child uses nothing of it.
	if c.Mutate != nil {
		c.Mutate(child)
	}
	if err := c.admit("create", child); err != nil {
		return none, err
	}
	if err := c.checkQuota(child); err != nil {
		return none, err
	}
	created, err := c.children.create(child)
	if err == nil {
		c.life.created(created)
		// The owner may have gone while this creation was on its way.
		c.seekOwners(created)
	}
	return copied(created, err)
}

func (c *Cluster[O, C]) admit(verb string, child C) error {
	if c.Webhook == nil {
		return nil
	}
	return c.Webhook(verb, child)
}

func (c *Cluster[O, C]) checkQuota(child C) error {
	limit, limited := c.quota[child.GetNamespace()]
	if !limited {
		return nil
	}
	used := 0
	for _, other := range c.children.rows.in(child.GetNamespace()) {
		if !c.life.isFinished(other) {
			used++
		}
	}
	if used < limit {
		return nil
	}
	name := c.children.resource.Resource
	return apierrors.NewForbidden(c.children.resource, child.GetName(), fmt.Errorf(
		"exceeded quota: %s, requested: %s=1, used: %s=%d, limited: %s=%d", name, name, name, used, name, limit))
}

// GetChild reads a child.
func (c *Cluster[O, C]) GetChild(ctx context.Context, namespace, name string) (C, error) {
	return copied(c.readChild(ctx, namespace, name))
}

func (c *Cluster[O, C]) readChild(ctx context.Context, namespace, name string) (C, error) {
	if err := ctx.Err(); err != nil {
		var none C
		return none, err
	}
	return c.children.get(namespace, name)
}

// EditChild changes a child, including its status.
func (c *Cluster[O, C]) EditChild(ctx context.Context, namespace, name string, change func(child C)) (C, error) {
	old, err := c.readChild(ctx, namespace, name)
	if err != nil {
		return old, err
	}
	if change == nil {
		change = func(C) {}
	}
	return copied(c.updateChild(old, change))
}

func (c *Cluster[O, C]) updateChild(old C, change func(C)) (C, error) {
	child, err := c.children.update(old, change)
	if err == nil {
		c.changedChild(old, child)
	}
	return child, err
}

func (c *Cluster[O, C]) changedChild(old, child C) {
	c.seekOwners(child)
	if child.GetGeneration() != old.GetGeneration() {
		c.life.changed(child)
	}
}

// patchChild patches a child or a subresource of it.
func (c *Cluster[O, C]) patchChild(ctx context.Context, namespace, name string, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	var none C
	old, err := c.readChild(ctx, namespace, name)
	if err != nil {
		return none, err
	}
	change, err := c.children.parsePatch(patch, old)
	if err != nil {
		return none, err
	}
	if err := c.children.checkPatch(change, old); err != nil {
		return none, err
	}
	if err := c.admit("patch", old); err != nil {
		return none, err
	}
	child, err := patched(change, old)
	if err != nil {
		return none, badPatch(patch, err)
	}
	// A dry run stops only here, so it meets each check and each webhook that the patch itself would meet.
	if err := c.children.prepare(child, old); err != nil || len(opts.DryRun) > 0 {
		return copied(child, err)
	}
	child = c.children.write(old, child)
	c.changedChild(old, child)
	return child.DeepCopy(), nil
}

// DeleteChild starts the deletion of a child, and returns the child's new resourceVersion, or "" if the child is
// removed immediately. A pod on a node is removed after its grace period. Pods without a node, finished pods and
// children of other types have no grace period, but a child whose dependents are deleted in the foreground or orphaned
// stays until the garbage collector has run. Without a policy, a batch/v1 Job and a v1 ReplicationController orphan
// their dependents. A dry run checks the request and deletes nothing.
func (c *Cluster[O, C]) DeleteChild(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) (string, error) {
	old, err := c.readChild(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if err := checkPreconditions(c.children.resource, old, opts.Preconditions); err != nil {
		return "", err
	}
	if err := c.admit("delete", old); err != nil {
		return "", err
	}
	if isPending(old, opts) || len(opts.DryRun) > 0 {
		// A controller that deletes a terminating child once more gets its answer, but no event follows.
		return old.GetResourceVersion(), nil
	}
	if old.GetDeletionTimestamp() == nil {
		// The finalizer comes before the deletion, because a child that nothing holds would be gone with it.
		old = withPropagation(old, c.propagation(old, opts))
	}
	child := c.deleteChild(old, opts)
	c.collectLater()
	if isFinished(child) {
		return "", nil
	}
	return child.GetResourceVersion(), nil
}

// deleteChild starts the deletion of a child. The kubelet completes that of a pod.
func (c *Cluster[O, C]) deleteChild(old C, opts metav1.DeleteOptions) C {
	grace := c.life.grace(old, opts)
	child := c.children.delete(old, grace)
	if !isFinished(child) {
		c.doLater(grace, kill, child)
	}
	return child
}

// isPending reports whether a deletion would change nothing: the child is being deleted already, and a grace period can
// only become shorter.
func isPending(child metav1.Object, opts metav1.DeleteOptions) bool {
	current, want := child.GetDeletionGracePeriodSeconds(), opts.GracePeriodSeconds
	return current != nil && (want == nil || *want >= *current)
}
