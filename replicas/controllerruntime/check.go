// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/replicakit/replicakit/replicas/controller"
)

// checkScopes tells whether the owners of a kind are in no namespace, and refuses
// children that none of them can own: what is in a namespace owns what is in that
// namespace.
func checkScopes[O, C controller.Object](mapper meta.RESTMapper, kind controller.Kind[O, C]) (clusterScoped bool, err error) {
	owner, err := mapper.RESTMapping(kind.Owner.GroupKind(), kind.Owner.Version)
	if err != nil {
		return false, fmt.Errorf("controllerruntime: kind %s: %w", kind.Owner.Kind, err)
	}
	child, err := mapper.RESTMapping(kind.Child.GroupKind(), kind.Child.Version)
	if err != nil {
		return false, fmt.Errorf("controllerruntime: kind %s: child %s: %w", kind.Owner.Kind, kind.Child.Kind, err)
	}
	if owner.Scope.Name() != meta.RESTScopeNameNamespace {
		return true, nil
	}
	if child.Scope.Name() != meta.RESTScopeNameNamespace {
		return false, fmt.Errorf("controllerruntime: kind %s is in a namespace, and its child %s in none: it cannot own any", kind.Owner.Kind, kind.Child.Kind)
	}
	if kind.ClusterScoped {
		return false, fmt.Errorf("controllerruntime: kind %s: ClusterScoped is true, but the server has it in namespaces", kind.Owner.Kind)
	}
	return false, nil
}

// addIndex adds what the cache is searched by.
func (v *view[O, C]) addIndex(indexer client.FieldIndexer) error {
	field, extract := Index(v.kind)
	v.field = field
	child, err := v.children.empty()
	if err != nil {
		return err
	}
	if err := indexer.IndexField(context.Background(), child, field, extract); err != nil {
		return fmt.Errorf("controllerruntime: adding the index %q of %s: %w", field, v.kind.Child.Kind, err)
	}
	if !arePods[C]() {
		return nil
	}
	owner, err := v.owners.empty()
	if err != nil {
		return err
	}
	if err := indexer.IndexField(context.Background(), owner, field, extract); err != nil {
		return fmt.Errorf("controllerruntime: adding the index %q of %s: %w", field, v.kind.Owner.Kind, err)
	}
	return nil
}

// checkCache makes sure that the cache can tell the children of each owner: that
// the index is there, and that the cache holds the children of all namespaces of
// which it holds the owners.
func (v view[O, C]) checkCache(ctx context.Context) error {
	if _, err := v.byController(ctx, nil, "", noController); err != nil {
		return err
	}
	owners, err := v.Owners(ctx, "")
	if err != nil {
		return fmt.Errorf("controllerruntime: listing %s: %w", v.kind.Owner.Kind, err)
	}
	namespaces := sets.New[string]()
	for _, owner := range owners {
		namespaces.Insert(owner.GetNamespace())
	}
	for _, namespace := range sets.List(namespaces) {
		if _, err := v.byController(ctx, nil, namespace, noController); err != nil {
			return err
		}
	}
	return nil
}
