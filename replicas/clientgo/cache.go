// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A view is the informers' stores as a controller reads them. Both are indexed by
// controller: nothing but what is asked for is read or copied.
type view[O, C controller.Object] struct {
	kind                   controller.Kind[O, C]
	owners, children       cache.Indexer
	ownerIndex, childIndex string // by controller
}

func newView[O, C controller.Object](kind controller.Kind[O, C], owners, children cache.SharedIndexInformer) *view[O, C] {
	return &view[O, C]{kind: kind, owners: owners.GetIndexer(), children: children.GetIndexer()}
}

// addIndexes makes the view complete.
func (v *view[O, C]) addIndexes(owners, children cache.SharedIndexInformer) (err error) {
	ownerProbes, err := probes[O]()
	if err != nil {
		return fmt.Errorf("owners: %w", err)
	}
	childProbes, err := probes[C]()
	if err != nil {
		return fmt.Errorf("children: %w", err)
	}
	name, index := childIndexName, indexChild
	if v.kind.ClusterScoped {
		name, index = childOfAllIndexName, indexChildOfAll
	}
	v.childIndex, err = addIndex(children, name, index, childProbes...)
	if err != nil {
		return err
	}
	v.ownerIndex, err = addIndex(owners, ownerIndexName, indexOwner, ownerProbes...)
	return err
}

func (v *view[O, C]) Owner(_ context.Context, name types.NamespacedName) (owner O, err error) {
	obj, exists, err := v.owners.GetByKey(cache.NewObjectName(name.Namespace, name.Name).String())
	switch {
	case err != nil:
		return owner, err
	case !exists:
		return owner, apierrors.NewNotFound(schema.GroupResource{Group: v.kind.Owner.Group, Resource: v.kind.Owner.Kind}, name.Name)
	}
	return typed[O](obj)
}

func (v *view[O, C]) Owners(_ context.Context, namespace string) (owners []O, err error) {
	var wrong error
	err = cache.ListAllByNamespace(v.owners, namespace, labels.Everything(), func(obj any) {
		owner, err := typed[O](obj)
		if err != nil {
			wrong = err
			return
		}
		owners = append(owners, owner)
	})
	return owners, errors.Join(err, wrong)
}

func (v *view[O, C]) OwnersVersion() string   { return v.owners.LastStoreSyncResourceVersion() }
func (v *view[O, C]) ChildrenVersion() string { return v.children.LastStoreSyncResourceVersion() }

func (v *view[O, C]) Children(_ context.Context, owner O) ([]C, error) { return v.candidates(owner) }

// Related returns the children of the owner's siblings and its own; see
// replicas.Related.
func (v *view[O, C]) Related(ctx context.Context, owner O) ([]C, error) {
	ref := metav1.GetControllerOfNoCopy(owner)
	if ref == nil {
		return nil, nil
	}
	siblings, err := byIndex[O](v.owners, v.ownerIndex, string(ref.UID))
	if err != nil {
		return nil, err
	}
	children, err := v.candidates(siblings...)
	if err != nil {
		return nil, err
	}
	related := replicas.Related(owner, siblings, v.selectorOf, children)
	kind, logger := v.kind.Owner.Kind, klog.FromContext(ctx)
	logger.V(2).Info("Found related "+kind+"s", logKey(kind), klog.KObj(owner), "related"+kind+"s", klog.KObjSlice(siblings))
	logger.V(4).Info("Found related pods", "kind", kind, logKey(kind), klog.KObj(owner), "pods", klog.KObjSlice(related))
	return related, nil
}

func (v *view[O, C]) selectorOf(owner O) (labels.Selector, error) {
	spec, err := v.kind.Spec(owner)
	return spec.Selector, err
}

// owned returns the children whose controller is the owner: by UID, never all of a
// namespace.
func (v *view[O, C]) owned(owner O) ([]C, error) {
	ref := metav1.OwnerReference{Kind: v.kind.Owner.Kind, Name: owner.GetName(), UID: owner.GetUID()}
	return byIndex[C](v.children, v.childIndex, childKey(owner.GetNamespace(), &ref))
}

// orphans returns the orphans of the owners' namespaces.
func (v *view[O, C]) orphans(owners []O) ([]C, error) {
	var children []C
	namespaces := map[string]bool{}
	for _, owner := range owners {
		namespace := owner.GetNamespace()
		if namespaces[namespace] {
			continue
		}
		namespaces[namespace] = true
		orphans, err := byIndex[C](v.children, v.childIndex, childKey(namespace, nil))
		if err != nil {
			return nil, err
		}
		children = append(children, orphans...)
	}
	return children, nil
}

// candidates returns the children that passes for the owners are about: what they
// own, and the orphans of their namespaces (Y6). The cache goes on meanwhile, so
// orphans are read before and after: a child that is adopted or orphaned between
// two reads is found by one of them.
func (v *view[O, C]) candidates(owners ...O) ([]C, error) {
	before, err := v.orphans(owners)
	if err != nil {
		return nil, err
	}
	var owned []C
	for _, owner := range owners {
		children, err := v.owned(owner)
		if err != nil {
			return nil, err
		}
		if owned == nil {
			owned = children
			continue
		}
		owned = append(owned, children...)
	}
	after, err := v.orphans(owners)
	if err != nil {
		return nil, err
	}
	if sameObjects(before, after) {
		return append(owned, after...), nil
	}
	return latest(after, owned, before), nil
}

// sameObjects reports whether both lists hold the same pointers, in any order.
func sameObjects[C controller.Object](a, b []C) bool {
	if len(a) != len(b) {
		return false
	}
	known := make(map[controller.Object]bool, len(a))
	for _, c := range a {
		known[c] = true
	}
	return !slices.ContainsFunc(b, func(c C) bool { return !known[c] })
}

// latest returns each child once, as the first of the views has it.
func latest[C controller.Object](views ...[]C) []C {
	var children []C
	known := map[cache.ObjectName]bool{}
	for _, c := range slices.Concat(views...) {
		if name := cache.MetaObjectToName(c); !known[name] {
			known[name] = true
			children = append(children, c)
		}
	}
	return children
}

// typed returns an object of a store, which may be another one's.
func typed[T any](obj any) (T, error) {
	t, ok := obj.(T)
	if !ok {
		return t, fmt.Errorf("clientgo: the informer holds a %T: want %s", obj, reflect.TypeFor[T]())
	}
	return t, nil
}
