// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A view reads the cluster's cache. Its lists contain the cached objects themselves, which are never modified.
type view[O, C client.Object] struct {
	cache    client.Reader
	kind     controller.Kind[O, C]
	owners   objects[O]
	children objects[C]
	field    string // see Index

	ownersVersion, childrenVersion func() string
}

var _ controller.Cache[client.Object, client.Object] = view[client.Object, client.Object]{}

// Index returns the name of the index field, and the function that computes the field's value for an object. The
// value identifies the controller of the object, or says that it has none. Passes use the index to find children,
// and if these are pods, also the siblings of an owner. New adds the index to the cluster's cache. For a fake
// client in a test, add it yourself:
//
//	field, extract := controllerruntime.Index(kind)
//	fake.NewClientBuilder().WithIndex(&Worker{}, field, extract)
//
// The name of the field contains the owners' kind, because a cache refuses a second index with the same
// field name.
func Index[O, C client.Object](kind controller.Kind[O, C]) (field string, extract client.IndexerFunc) {
	return "replicakit/controllerOf/" + kind.Owner.GroupKind().String(), func(obj client.Object) []string {
		if isNil(obj) {
			return nil
		}
		return []string{indexValue(metav1.GetControllerOfNoCopy(obj))}
	}
}

const noController = "none"

func indexValue(ref *metav1.OwnerReference) string {
	switch {
	case ref == nil:
		return noController
	case ref.UID == "": // as with a fake client
		return "name/" + ref.Kind + "/" + ref.Name
	}
	return "uid/" + string(ref.UID)
}

func (v view[O, C]) Owner(ctx context.Context, name types.NamespacedName) (O, error) {
	return v.owners.get(ctx, v.cache, name.Namespace, name.Name)
}

func (v view[O, C]) Owners(ctx context.Context, namespace string) ([]O, error) {
	owners, _, err := v.owners.list(ctx, v.cache, nil, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	return owners, err
}

func (v view[O, C]) Children(ctx context.Context, owner O) ([]C, error) {
	return v.of(ctx, owner)
}

// of returns the children of these owners, which must be in one namespace, and the orphans there.
func (v view[O, C]) of(ctx context.Context, owners ...O) ([]C, error) {
	values := []string{noController}
	for _, owner := range owners {
		values = append(values, indexValue(&metav1.OwnerReference{Kind: v.kind.Owner.Kind, Name: owner.GetName(), UID: owner.GetUID()}))
	}
	var children []C
	var err error
	// The cache changes between two lists. If web-2 is adopted after the owned children were listed, the first list
	// of orphans has it, and if it is orphaned before that, the last one.
	for _, value := range append(values, noController) {
		if children, err = v.byController(ctx, children, owners[0].GetNamespace(), value); err != nil {
			return nil, err
		}
	}
	return lastOfEach(children), nil
}

func (v view[O, C]) byController(ctx context.Context, children []C, namespace, value string) ([]C, error) {
	children, _, err := v.children.list(ctx, v.cache, children,
		client.InNamespace(namespace), client.MatchingFields{v.field: value}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("controllerruntime: listing %s in namespace %q by the index %q: %w", v.children.kind.Kind, namespace, v.field, err)
	}
	return children, nil
}

// lastOfEach returns each child once, as it was listed last.
func lastOfEach[C client.Object](children []C) []C {
	seen := make(sets.Set[client.ObjectKey], len(children))
	slices.Reverse(children)
	return slices.DeleteFunc(children, func(c C) bool {
		key := client.ObjectKeyFromObject(c)
		known := seen.Has(key)
		seen.Insert(key)
		return known
	})
}

// Related returns the pods of the owner and of its siblings, by which pods are ranked by co-location. It returns
// nil for other children, which are ranked by co-location only if Kind.Spec sets Related.
func (v view[O, C]) Related(ctx context.Context, owner O) ([]C, error) {
	ref := metav1.GetControllerOfNoCopy(owner)
	if ref == nil || !arePods[C]() {
		return nil, nil
	}
	siblings, _, err := v.owners.list(ctx, v.cache, nil,
		client.InNamespace(owner.GetNamespace()), client.MatchingFields{v.field: indexValue(ref)}, client.UnsafeDisableDeepCopy)
	if err != nil || len(siblings) == 0 {
		return nil, err
	}
	children, err := v.of(ctx, siblings...)
	if err != nil {
		return nil, err
	}
	return replicas.Related(owner, siblings, v.selectorOf, children), nil
}

func (v view[O, C]) selectorOf(owner O) (labels.Selector, error) {
	spec, err := v.kind.Spec(owner)
	return spec.Selector, err
}

func (v view[O, C]) OwnersVersion() string   { return v.ownersVersion() }
func (v view[O, C]) ChildrenVersion() string { return v.childrenVersion() }

func arePods[C client.Object]() bool {
	_, pods := any(*new(C)).(*corev1.Pod)
	return pods
}
