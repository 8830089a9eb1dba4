// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// An OwnerClient reads the owners in one namespace and patches their status. L is a pointer to the list
// type of the owners. The typed clients of client-go, and those that client-gen generates, implement
// OwnerClient.
type OwnerClient[O controller.Object, L runtime.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (O, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Patch(ctx context.Context, name string, patchType types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (O, error)
}

// A ChildClient makes the API calls for the children in one namespace. L is a pointer to the list type of
// the children. The typed clients of client-go, and those that client-gen generates, implement ChildClient.
type ChildClient[C controller.Object, L runtime.Object] interface {
	Create(ctx context.Context, child C, opts metav1.CreateOptions) (C, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Patch(ctx context.Context, name string, patchType types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (C, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (C, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
}

// NewClient returns a client for a controller.Controller. owners and children return a typed client for a namespace,
// where "" means all namespaces, or none if the objects are cluster-scoped:
//
//	typed.NewClient(kube.AppsV1().ReplicaSets, kube.CoreV1().Pods)
//	typed.NewClient(fleet.FleetV1().WorkerPools, fleet.FleetV1().Workers)
//
// Dynamic clients need a small wrapper, because their methods have one more argument, for subresources.
//
// The client returns the errors of the typed clients, which also wrap controller.ErrResent after client-go has sent a
// create request more than once. Children are listed in pages of 500, without a resourceVersion, so the server does not
// return stale data. List returns an error if the pages have different resourceVersions. The client also implements
// controller.Versioner and controller.Checker: controller.New returns an error if a function is nil or returns nil.
func NewClient[O, C controller.Object, OL, CL runtime.Object, OC OwnerClient[O, OL], CC ChildClient[C, CL]](owners func(namespace string) OC, children func(namespace string) CC) controller.Client[O, C] {
	return client[O, C, OL, CL, OC, CC]{owners, children}
}

type client[O, C controller.Object, OL, CL runtime.Object, OC OwnerClient[O, OL], CC ChildClient[C, CL]] struct {
	owners   func(namespace string) OC
	children func(namespace string) CC
}

// Check returns an error if a function that was passed to NewClient is nil or returns nil.
func (c client[O, C, OL, CL, OC, CC]) Check() error {
	_, err := c.ownersIn("")
	if err == nil {
		_, err = c.childrenIn("")
	}
	return err
}

func (c client[O, C, OL, CL, OC, CC]) ownersIn(namespace string) (OC, error) {
	return clientIn("owners", c.owners, namespace)
}

func (c client[O, C, OL, CL, OC, CC]) childrenIn(namespace string) (CC, error) {
	return clientIn("children", c.children, namespace)
}

func clientIn[T any](what string, of func(namespace string) T, namespace string) (found T, err error) {
	if of == nil {
		return found, fmt.Errorf("typed: %s of the client is nil", what)
	}
	if found = of(namespace); object.IsNil(found) {
		return found, fmt.Errorf("typed: %s of the client returned nil for namespace %q", what, namespace)
	}
	return found, nil
}

func (c client[O, C, OL, CL, OC, CC]) forChild(child C) (CC, error) {
	if object.IsNil(child) {
		return *new(CC), errors.New("typed: child is nil")
	}
	return c.childrenIn(child.GetNamespace())
}

func (c client[O, C, OL, CL, OC, CC]) Create(ctx context.Context, child C) (created C, err error) {
	children, err := c.forChild(child)
	if err != nil {
		return created, err
	}
	// client-go repeats a request after a 429 or 5xx with Retry-After. The first one may have made the child, and the
	// second meets an AlreadyExists.
	err = controller.NoteResent(ctx, func(ctx context.Context) error {
		created, err = children.Create(ctx, child, metav1.CreateOptions{})
		return err
	})
	return created, err
}

func (c client[O, C, OL, CL, OC, CC]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error {
	children, err := c.forChild(child)
	if err != nil {
		return err
	}
	return children.Delete(ctx, child.GetName(), opts)
}

func (c client[O, C, OL, CL, OC, CC]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (patched C, err error) {
	children, err := c.forChild(child)
	if err != nil {
		return patched, err
	}
	var subresources []string
	if patch.Subresource != "" {
		subresources = []string{patch.Subresource}
	}
	return children.Patch(ctx, child.GetName(), patch.Type, patch.Data, opts, subresources...)
}

func (c client[O, C, OL, CL, OC, CC]) Get(ctx context.Context, namespace, name string) (child C, err error) {
	children, err := c.childrenIn(namespace)
	if err != nil {
		return child, err
	}
	return children.Get(ctx, name, metav1.GetOptions{})
}

func (c client[O, C, OL, CL, OC, CC]) GetOwner(ctx context.Context, namespace, name string) (owner O, err error) {
	owners, err := c.ownersIn(namespace)
	if err != nil {
		return owner, err
	}
	return owners.Get(ctx, name, metav1.GetOptions{})
}

func (c client[O, C, OL, CL, OC, CC]) PatchStatus(ctx context.Context, owner O, patch selector.Patch) (stored O, err error) {
	if object.IsNil(owner) {
		return stored, errors.New("typed: owner is nil")
	}
	owners, err := c.ownersIn(owner.GetNamespace())
	if err != nil {
		return stored, err
	}
	return owners.Patch(ctx, owner.GetName(), patch.Type, patch.Data, metav1.PatchOptions{}, "status")
}

// pageSize is the maximum number of children in one page of a live list.
const pageSize = 500

func (c client[O, C, OL, CL, OC, CC]) List(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[C], error) {
	if object.IsNil(matching) {
		return ledger.List[C]{}, errors.New("typed: listing children: selector is nil")
	}
	children, err := c.childrenIn(namespace)
	if err != nil {
		return ledger.List[C]{}, err
	}
	opts := metav1.ListOptions{LabelSelector: matching.String(), Limit: pageSize}
	var list ledger.List[C]
	for first := true; ; first = false {
		page, err := children.List(ctx, opts)
		if err != nil {
			return ledger.List[C]{}, err
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return ledger.List[C]{}, fmt.Errorf("typed: listing children: %w", err)
		}
		if version := about.GetResourceVersion(); first {
			list.Version = version
		} else if version != list.Version { // one child could be in no page, and so count as gone
			return ledger.List[C]{}, fmt.Errorf("typed: listing children: a page of version %q follows a page of version %q", version, list.Version)
		}
		if list.Items, err = appendItems(list.Items, page); err != nil {
			return ledger.List[C]{}, err
		}
		if opts.Continue = about.GetContinue(); opts.Continue == "" {
			return list, nil
		}
	}
}

func (c client[O, C, OL, CL, OC, CC]) ServerOwnersVersion(ctx context.Context, namespace string) (string, error) {
	owners, err := c.ownersIn(namespace)
	if err != nil {
		return "", err
	}
	return versionOf(ctx, "owners", owners.List)
}

func (c client[O, C, OL, CL, OC, CC]) ServerChildrenVersion(ctx context.Context, namespace string) (string, error) {
	children, err := c.childrenIn(namespace)
	if err != nil {
		return "", err
	}
	return versionOf(ctx, "children", children.List)
}

// versionOf returns the server's current resourceVersion, as a list of at most one object has it.
func versionOf[L runtime.Object](ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error)) (string, error) {
	one, err := list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	about, err := meta.ListAccessor(one)
	if err != nil {
		return "", fmt.Errorf("typed: listing %s: %w", what, err)
	}
	return about.GetResourceVersion(), nil
}

func appendItems[C controller.Object](items []C, page runtime.Object) ([]C, error) {
	err := meta.EachListItem(page, func(item runtime.Object) error {
		child, ok := item.(C)
		if !ok {
			return fmt.Errorf("typed: listing children: %T holds a %T", page, item)
		}
		items = append(items, child)
		return nil
	})
	return items, err
}
