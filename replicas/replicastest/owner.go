// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// CreateOwner stores a new owner, without its status. Nil replicas of a ReplicaSet or a ReplicationController become 1,
// but no other defaults are set.
func (c *Cluster[O, C]) CreateOwner(ctx context.Context, owner O) (O, error) {
	var none O
	if object.IsNil(owner) {
		return none, errNil
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := c.checkNamespace(c.owners.resource, owner.GetNamespace(), owner.GetName()); err != nil {
		return none, err
	}
	owner = owner.DeepCopy()
	clearStatus(owner)
	switch o := any(owner).(type) {
	case *appsv1.ReplicaSet:
		o.Spec.Replicas = orOne(o.Spec.Replicas)
	case *corev1.ReplicationController:
		o.Spec.Replicas = orOne(o.Spec.Replicas)
	}
	return copied(c.owners.create(owner))
}

func orOne(n *int32) *int32 {
	if n == nil {
		n = new(int32)
		*n = 1
	}
	return n
}

// GetOwner reads an owner.
func (c *Cluster[O, C]) GetOwner(ctx context.Context, namespace, name string) (O, error) {
	return copied(c.readOwner(ctx, namespace, name))
}

// Owners returns the owners that the server has in a namespace, sorted by namespace and name. "" means all namespaces.
func (c *Cluster[O, C]) Owners(namespace string) []O { return clone(c.owners.rows.in(namespace)) }

// EditOwner changes an owner, but not its field Status. A change of the spec raises the generation.
func (c *Cluster[O, C]) EditOwner(ctx context.Context, namespace, name string, change func(owner O)) (O, error) {
	old, err := c.readOwner(ctx, namespace, name)
	if err != nil {
		return old, err
	}
	defer c.collectLater()
	return copied(c.owners.update(old, func(owner O) {
		if change != nil {
			change(owner)
		}
		// The status has its own subresource, so a server ignores it here.
		setStatus(owner, old.DeepCopy())
	}))
}

// patchOwnerStatus applies the status in a JSON merge patch to an owner.
func (c *Cluster[O, C]) patchOwnerStatus(ctx context.Context, namespace, name string, patch selector.Patch) (O, error) {
	var none O
	old, err := c.readOwner(ctx, namespace, name)
	if err != nil {
		return none, err
	}
	if patch.Type != types.MergePatchType {
		// Custom owners accept no strategic merge patch, so controllers send merge patches for all of them.
		return none, c.owners.unsupported(patch)
	}
	var body struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   map[string]any    `json:"status"`
	}
	if err := json.Unmarshal(patch.Data, &body); err != nil {
		return none, badPatch(patch, err)
	}
	if err := checkWritten(c.owners.resource, &body.Metadata, old); err != nil {
		return none, err
	}
	changed := old.DeepCopy()
	if err := patchStatus(changed, body.Status); err != nil {
		return none, badPatch(patch, err)
	}
	return copied(c.owners.update(old, func(o O) { setStatus(o, changed) }))
}

// DeleteOwner deletes an owner, or only marks it as being deleted while it has finalizers. The garbage collector then
// handles its children. With the policy Background or "", it deletes them after the owner is gone, and with Foreground
// before that. With Orphan, it removes their references to the owner.
func (c *Cluster[O, C]) DeleteOwner(ctx context.Context, namespace, name string, policy metav1.DeletionPropagation) error {
	old, err := c.readOwner(ctx, namespace, name)
	if err != nil {
		return err
	}
	if finalizers[policy] != "" && old.GetDeletionTimestamp() == nil {
		// The finalizer comes before the deletion, because an owner that nothing holds would be gone with it.
		old = c.owners.write(old, withPropagation(old, policy))
	}
	c.owners.delete(old, 0)
	c.collectLater()
	return nil
}

func (c *Cluster[O, C]) readOwner(ctx context.Context, namespace, name string) (O, error) {
	if err := ctx.Err(); err != nil {
		var none O
		return none, err
	}
	return c.owners.get(namespace, name)
}

// checkWritten returns a Conflict if obj was made from another object or from another version of it.
func checkWritten(resource schema.GroupResource, obj, stored metav1.Object) error {
	switch {
	case obj.GetUID() != "" && obj.GetUID() != stored.GetUID():
		// The name belongs to another object now, so a comparison of the versions would say nothing.
		return mismatch(resource, stored, "UID", obj.GetUID(), stored.GetUID())
	case obj.GetResourceVersion() != "" && obj.GetResourceVersion() != stored.GetResourceVersion():
		return apierrors.NewConflict(resource, stored.GetName(),
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// checkPreconditions returns a Conflict unless the stored object meets the preconditions.
func checkPreconditions(resource schema.GroupResource, stored metav1.Object, want *metav1.Preconditions) error {
	switch {
	case want == nil:
		return nil
	case want.UID != nil && *want.UID != stored.GetUID():
		return mismatch(resource, stored, "UID", *want.UID, stored.GetUID())
	case want.ResourceVersion != nil && *want.ResourceVersion != stored.GetResourceVersion():
		return mismatch(resource, stored, "ResourceVersion", *want.ResourceVersion, stored.GetResourceVersion())
	}
	return nil
}

func mismatch(resource schema.GroupResource, stored metav1.Object, field string, want, got any) error {
	return apierrors.NewConflict(resource, stored.GetName(),
		fmt.Errorf("the %s in the precondition (%v) does not match the %s in record (%v)", field, want, field, got))
}
