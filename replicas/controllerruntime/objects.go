// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objects makes empty objects and lists of one kind, and fills them from a client or a cache.
type objects[T client.Object] struct {
	scheme *runtime.Scheme
	kind   schema.GroupVersionKind
}

// check returns an error if the scheme lacks the kind or its list kind, or has another type than T for it.
func (o objects[T]) check() error {
	if _, err := o.empty(); err != nil {
		return err
	}
	_, err := o.emptyList()
	return err
}

func (o objects[T]) empty() (T, error) { return newOf[T](o.scheme, o.kind) }

// named returns a new object with only the namespace and the name of another one.
func (o objects[T]) named(like client.Object) (T, error) {
	obj, err := o.empty()
	if err == nil {
		obj.SetNamespace(like.GetNamespace())
		obj.SetName(like.GetName())
	}
	return obj, err
}

func (o objects[T]) emptyList() (client.ObjectList, error) {
	return newOf[client.ObjectList](o.scheme, o.kind.GroupVersion().WithKind(o.kind.Kind+"List"))
}

func newOf[T runtime.Object](scheme *runtime.Scheme, kind schema.GroupVersionKind) (T, error) {
	if scheme == nil {
		return *new(T), fmt.Errorf("controllerruntime: there is no scheme that could know %s", kind)
	}
	obj, err := scheme.New(kind)
	if err != nil {
		return *new(T), fmt.Errorf("controllerruntime: the scheme does not know %s: %w", kind, err)
	}
	t, ok := obj.(T)
	if !ok {
		return *new(T), fmt.Errorf("controllerruntime: %s is a %T in the scheme, want %T", kind, obj, *new(T))
	}
	return t, nil
}

func (o objects[T]) get(ctx context.Context, from client.Reader, namespace, name string) (T, error) {
	obj, err := o.empty()
	if err != nil {
		return obj, err
	}
	return obj, from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
}

// list reads a list of objects, and returns it and the items with these objects appended.
func (o objects[T]) list(ctx context.Context, from client.Reader, items []T, opts ...client.ListOption) ([]T, client.ObjectList, error) {
	list, err := o.emptyList()
	if err != nil {
		return items, nil, err
	}
	if err := from.List(ctx, list, opts...); err != nil {
		return items, nil, err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		t, ok := item.(T)
		if !ok {
			return fmt.Errorf("controllerruntime: a list of %s holds a %T", o.kind, item)
		}
		items = append(items, t)
		return nil
	})
	return items, list, err
}

// version returns the server's current resourceVersion, as a list of at most one object has it.
func (o objects[T]) version(ctx context.Context, live client.Reader, namespace string) (string, error) {
	_, list, err := o.list(ctx, live, nil, &client.ListOptions{Namespace: namespace, Limit: 1})
	if err != nil {
		return "", err
	}
	return list.GetResourceVersion(), nil
}
