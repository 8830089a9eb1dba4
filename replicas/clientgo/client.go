// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
)

// An OwnerClient reads the owners of one namespace and writes their status. The
// typed clients of client-go are OwnerClients, and so are those that client-gen
// makes for custom resources with a status.
type OwnerClient[O controller.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (O, error)
	UpdateStatus(ctx context.Context, owner O, opts metav1.UpdateOptions) (O, error)
}

// A ChildClient makes the calls for the children of one namespace. L is a pointer
// to their list type. The typed clients of client-go, and those that client-gen
// makes, are ChildClients.
type ChildClient[C controller.Object, L runtime.Object] interface {
	Create(ctx context.Context, child C, opts metav1.CreateOptions) (C, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Patch(ctx context.Context, name string, patchType types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (C, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (C, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
}

// NewClient makes the client that New needs. owners and children return the typed
// client of a namespace; the namespace "" means all namespaces, or none for
// cluster-scoped objects:
//
//	clientgo.NewClient(kube.AppsV1().ReplicaSets, kube.CoreV1().Pods)
//	clientgo.NewClient(fleet.FleetV1().WorkerPools, fleet.FleetV1().Workers)
//
// Errors are those of the typed clients. Children are listed in pages of 500,
// without a resourceVersion; it is an error if the pages are not all of one
// version.
func NewClient[O, C controller.Object, L runtime.Object, OC OwnerClient[O], CC ChildClient[C, L]](owners func(namespace string) OC, children func(namespace string) CC) controller.Client[O, C] {
	return client[O, C, L, OC, CC]{owners, children}
}

type client[O, C controller.Object, L runtime.Object, OC OwnerClient[O], CC ChildClient[C, L]] struct {
	owners   func(namespace string) OC
	children func(namespace string) CC
}

func (c client[O, C, L, OC, CC]) Create(ctx context.Context, child C) (C, error) {
	return c.children(child.GetNamespace()).Create(ctx, child, metav1.CreateOptions{})
}

// Delete never knows the resourceVersion: typed clients do not tell, and the
// deletion is known by its UID.
func (c client[O, C, L, OC, CC]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) (resourceVersion string, err error) {
	return "", c.children(child.GetNamespace()).Delete(ctx, child.GetName(), opts)
}

func (c client[O, C, L, OC, CC]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	return c.children(child.GetNamespace()).Patch(ctx, child.GetName(), patch.Type, patch.Data, opts)
}

func (c client[O, C, L, OC, CC]) Get(ctx context.Context, namespace, name string) (C, error) {
	return c.children(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c client[O, C, L, OC, CC]) GetOwner(ctx context.Context, namespace, name string) (O, error) {
	return c.owners(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c client[O, C, L, OC, CC]) UpdateStatus(ctx context.Context, owner O) (O, error) {
	return c.owners(owner.GetNamespace()).UpdateStatus(ctx, owner, metav1.UpdateOptions{})
}

// pageSize is how many children one call of a live list returns at most.
const pageSize = 500

func (c client[O, C, L, OC, CC]) List(ctx context.Context, namespace string, matching labels.Selector) (controller.List[C], error) {
	opts := metav1.ListOptions{LabelSelector: matching.String(), Limit: pageSize}
	var list controller.List[C]
	for first := true; ; first = false {
		page, err := c.children(namespace).List(ctx, opts)
		if err != nil {
			return controller.List[C]{}, err
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return controller.List[C]{}, fmt.Errorf("clientgo: listing children: %w", err)
		}
		if version := about.GetResourceVersion(); first {
			list.ResourceVersion = version
		} else if version != list.ResourceVersion {
			return controller.List[C]{}, fmt.Errorf("clientgo: listing children: page of version %q follows one of %q", version, list.ResourceVersion)
		}
		if list.Items, err = appendItems(list.Items, page); err != nil {
			return controller.List[C]{}, err
		}
		if opts.Continue = about.GetContinue(); opts.Continue == "" {
			return list, nil
		}
	}
}

func appendItems[C controller.Object](items []C, page runtime.Object) ([]C, error) {
	err := meta.EachListItem(page, func(item runtime.Object) error {
		child, ok := item.(C)
		if !ok {
			return fmt.Errorf("clientgo: listing children: %T holds a %T", page, item)
		}
		items = append(items, child)
		return nil
	})
	return items, err
}

// A loggedClient logs creations and deletions as pkg/controller does.
type loggedClient[O, C controller.Object] struct {
	controller.Client[O, C]
	child string // the kind
}

func (c loggedClient[O, C]) Create(ctx context.Context, child C) (C, error) {
	created, err := c.Client.Create(ctx, child)
	if logger := klog.FromContext(ctx).V(4); err == nil && logger.Enabled() {
		logger.Info("Controller created "+strings.ToLower(c.child), "controller", controllerName(child), logKey(c.child), klog.KObj(created))
	}
	return created, err
}

func (c loggedClient[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) (resourceVersion string, err error) {
	logger := klog.FromContext(ctx)
	if logger := logger.V(2); logger.Enabled() {
		logger.Info("Deleting "+strings.ToLower(c.child), "controller", controllerName(child), logKey(c.child), klog.KObj(child))
	}
	resourceVersion, err = c.Client.Delete(ctx, child, opts)
	if apierrors.IsNotFound(err) {
		logger.V(4).Info(c.child+" has already been deleted.", logKey(c.child), klog.KObj(child))
	}
	return resourceVersion, err
}

func controllerName(child metav1.Object) string {
	if ref := metav1.GetControllerOfNoCopy(child); ref != nil {
		return ref.Name
	}
	return ""
}

// logKey is under what a log line names an object: "replicaSet" for a ReplicaSet.
func logKey(kind string) string { return strings.ToLower(kind[:1]) + kind[1:] }
