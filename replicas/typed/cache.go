// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

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

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// An Informer has the methods that NewCache calls. client-go's cache.SharedIndexInformer implements it, with
// cache.Indexers as M and cache.Indexer as I.
type Informer[M any, I Indexer[M]] interface {
	AddIndexers(indexers M) error
	GetIndexer() I
}

// An Indexer has the methods with which a Cache reads an informer's store. client-go's cache.Indexer implements it,
// with cache.Indexers as M. The Cache reports the resourceVersion that the store has reached if the Indexer also has
// the method LastStoreSyncResourceVersion, as in client-go 0.36 and later.
type Indexer[M any] interface {
	GetByKey(key string) (obj any, exists bool, err error)
	ByIndex(index, value string) ([]any, error)
	List() []any
	GetIndexers() M
}

// A Cache is a controller.Cache that reads the stores of two informers, one for owners and one for children. Both are
// indexed by controller, so the children and the siblings of an owner are found without a scan of the whole store. Make
// a Cache with NewCache; the methods of a zero Cache return an error. A Cache is safe for concurrent use.
type Cache[O, C controller.Object] struct {
	kind             controller.Kind[O, C]
	owners, children store
}

// A store contains an informer's store, and the name of the index that finds objects by their controller.
type store struct {
	from reader
	by   string
}

type reader interface {
	GetByKey(key string) (obj any, exists bool, err error)
	ByIndex(index, value string) ([]any, error)
	List() []any
}

var errNotMade = errors.New("typed: NewCache did not make this Cache")

// NewCache returns a Cache that reads the stores of the two informers, and adds an index to each of them. The
// informers may be shared, and may already be running. The indexes have the names and keys that Kubernetes' own
// controllers use, so one that exists already is used. But if it has other keys, NewCache keeps it, and adds its own
// under a name with the prefix "replicakit.". Only the fields Owner, ClusterScoped and Spec of the Kind are used.
//
// The compiler infers the types of both informers:
//
//	cache, err := typed.NewCache(kind, pools.Informer(), workers.Informer())
//
// NewCache returns an error if an informer is nil, if an index cannot be added, or if O or C is not a
// pointer type.
func NewCache[O, C controller.Object, M ~map[string]F, F ~func(obj any) ([]string, error), I Indexer[M]](kind controller.Kind[O, C], owners, children Informer[M, I]) (Cache[O, C], error) {
	c := Cache[O, C]{kind: kind}
	name, index := childIndexName, indexChild
	if kind.ClusterScoped {
		name, index = childOfAllIndexName, indexChildOfAll
	}
	var err error
	if c.owners, err = newStore[O](owners, ownerIndexName, F(indexOwner)); err != nil {
		return Cache[O, C]{}, fmt.Errorf("typed: owners: %w", err)
	}
	if c.children, err = newStore[C](children, name, F(index)); err != nil {
		return Cache[O, C]{}, fmt.Errorf("typed: children: %w", err)
	}
	return c, nil
}

// Owner returns the owner with the given name, or a NotFound error if the store does not contain it.
func (c Cache[O, C]) Owner(_ context.Context, name types.NamespacedName) (owner O, err error) {
	if c.owners.from == nil {
		return owner, errNotMade
	}
	obj, exists, err := c.owners.from.GetByKey(key(name.Namespace, name.Name))
	switch {
	case err != nil:
		return owner, err
	case !exists:
		return owner, apierrors.NewNotFound(schema.GroupResource{Group: c.kind.Owner.Group, Resource: c.kind.Owner.Kind}, name.Name)
	}
	return typed[O](obj)
}

// key returns the key of an object in a store.
func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// namespaceIndexName is client-go's name for the index by namespace. Nearly every informer has this index.
const namespaceIndexName = "namespace"

// Owners returns the owners in a namespace, or all owners if namespace is "".
func (c Cache[O, C]) Owners(_ context.Context, namespace string) ([]O, error) {
	if c.owners.from == nil {
		return nil, errNotMade
	}
	if namespace != "" { // an error means that the informer has no such index
		if found, err := c.owners.from.ByIndex(namespaceIndexName, namespace); err == nil {
			return allTyped[O](found)
		}
	}
	owners, err := allTyped[O](c.owners.from.List())
	return slices.DeleteFunc(owners, func(owner O) bool { return namespace != "" && owner.GetNamespace() != namespace }), err
}

// OwnersVersion returns the resourceVersion that the store of owners has reached, or "" if the store does
// not report one.
func (c Cache[O, C]) OwnersVersion() string { return c.owners.version() }

// ChildrenVersion returns the resourceVersion that the store of children has reached, or "" if the store
// does not report one.
func (c Cache[O, C]) ChildrenVersion() string { return c.children.version() }

func (s store) version() string {
	if told, ok := s.from.(interface{ LastStoreSyncResourceVersion() string }); ok {
		return told.LastStoreSyncResourceVersion()
	}
	return ""
}

// Children returns the owner's children, and the orphans in the owner's namespace.
func (c Cache[O, C]) Children(_ context.Context, owner O) ([]C, error) {
	if object.IsNil(owner) {
		return nil, errors.New("typed: owner is nil")
	}
	return c.candidates(owner)
}

// Siblings returns the owners that have the same controller as the given owner, including that owner itself. The list
// is empty if the given owner has no controller.
func (c Cache[O, C]) Siblings(owner O) ([]O, error) {
	if object.IsNil(owner) {
		return nil, errors.New("typed: owner is nil")
	}
	ref := metav1.GetControllerOfNoCopy(owner)
	if ref == nil {
		return nil, nil
	}
	return byIndex[O](c.owners, string(ref.UID))
}

// Related returns the children of the owner and of its siblings; see replicas.Related.
func (c Cache[O, C]) Related(_ context.Context, owner O) ([]C, error) {
	siblings, err := c.Siblings(owner)
	if err != nil || len(siblings) == 0 {
		return nil, err
	}
	children, err := c.candidates(siblings...)
	if err != nil {
		return nil, err
	}
	return replicas.Related(owner, siblings, c.selectorOf, children), nil
}

func (c Cache[O, C]) selectorOf(owner O) (labels.Selector, error) {
	spec, err := c.kind.Spec(owner)
	return spec.Selector, err
}

// owned returns the children whose controller reference has the owner's kind, name and UID.
func (c Cache[O, C]) owned(owner O) ([]C, error) {
	ref := metav1.OwnerReference{Kind: c.kind.Owner.Kind, Name: owner.GetName(), UID: owner.GetUID()}
	return byIndex[C](c.children, childKey(owner.GetNamespace(), &ref))
}

// orphans returns the orphans in the owners' namespaces.
func (c Cache[O, C]) orphans(owners []O) ([]C, error) {
	var children []C
	var namespaces []string // few
	for _, owner := range owners {
		namespace := owner.GetNamespace()
		if slices.Contains(namespaces, namespace) {
			continue
		}
		namespaces = append(namespaces, namespace)
		orphans, err := byIndex[C](c.children, childKey(namespace, nil))
		if err != nil {
			return nil, err
		}
		children = append(children, orphans...)
	}
	return children, nil
}

// candidates returns the owners' own children and the orphans in the owners' namespaces (Y6).
func (c Cache[O, C]) candidates(owners ...O) ([]C, error) {
	// The store changes between two reads. If web-2 is adopted after the owned children were read, it is among the
	// orphans of before. If it is orphaned before they are read, it is among the orphans of after.
	before, err := c.orphans(owners)
	if err != nil {
		return nil, err
	}
	var owned []C
	for _, owner := range owners {
		children, err := c.owned(owner)
		if err != nil {
			return nil, err
		}
		if owned == nil {
			owned = children
			continue
		}
		owned = append(owned, children...)
	}
	after, err := c.orphans(owners)
	if err != nil {
		return nil, err
	}
	if sameObjects(before, after) {
		return append(owned, after...), nil
	}
	// web-2 may be in two of them, and the read that came later is right.
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

// latest merges the views into one list, with each child as the first view that has it.
func latest[C controller.Object](views ...[]C) []C {
	var children []C
	known := map[types.NamespacedName]bool{}
	for _, c := range slices.Concat(views...) {
		if name := (types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}); !known[name] {
			known[name] = true
			children = append(children, c)
		}
	}
	return children
}

func byIndex[T any](s store, controller string) ([]T, error) {
	if s.from == nil {
		return nil, errNotMade
	}
	found, err := s.from.ByIndex(s.by, controller)
	if err != nil {
		return nil, err
	}
	return allTyped[T](found)
}

func allTyped[T any](found []any) (_ []T, err error) {
	objects := make([]T, len(found))
	for i, obj := range found {
		if objects[i], err = typed[T](obj); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

func typed[T any](obj any) (T, error) {
	t, ok := obj.(T)
	if !ok {
		return t, fmt.Errorf("typed: the informer holds a %T: want %s", obj, reflect.TypeFor[T]())
	}
	return t, nil
}
