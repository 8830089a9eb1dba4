// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/controller"
)

// The indexes have the names and keys that Kubernetes' own controllers use, so that those controllers can
// share the informers.
const (
	childIndexName = "podController" // Z7
	ownerIndexName = "controllerUID" // L1
	// childOfAllIndexName is the name of the index for the children of cluster-scoped owners.
	childOfAllIndexName = "replicakit.controllerOfAllNamespaces"
)

// childKey returns the index key for the children of a controller, or for the orphans in the namespace if ref is nil.
func childKey(namespace string, ref *metav1.OwnerReference) string {
	if ref == nil {
		return namespace
	}
	return namespace + "/" + ref.Kind + "/" + ref.Name + "/" + string(ref.UID)
}

func indexChild(obj any) ([]string, error) {
	child, ok := obj.(metav1.Object)
	if !ok {
		return nil, nil
	}
	return []string{childKey(child.GetNamespace(), metav1.GetControllerOfNoCopy(child))}, nil
}

// indexChildOfAll leaves out the child's namespace, because a cluster-scoped owner has none.
func indexChildOfAll(obj any) ([]string, error) {
	child, ok := obj.(metav1.Object)
	if !ok {
		return nil, nil
	}
	return []string{childKey("", metav1.GetControllerOfNoCopy(child))}, nil
}

// indexOwner returns the UID of an owner's own controller as the index key.
func indexOwner(obj any) ([]string, error) {
	owner, ok := obj.(metav1.Object)
	if !ok {
		return nil, nil
	}
	ref := metav1.GetControllerOfNoCopy(owner)
	if ref == nil {
		return nil, nil
	}
	return []string{string(ref.UID)}, nil
}

// newStore returns the informer's store with an index that finds objects by their controller.
func newStore[T controller.Object, M ~map[string]F, F ~func(obj any) ([]string, error), I Indexer[M]](from Informer[M, I], name string, index F) (store, error) {
	if object.IsNil(from) {
		return store{}, errors.New("the informer is nil")
	}
	probes, err := probes[T]()
	if err != nil {
		return store{}, err
	}
	for {
		existing, exists := from.GetIndexer().GetIndexers()[name]
		switch {
		case !exists:
			return store{from.GetIndexer(), name}, from.AddIndexers(M{name: index})
		case !slices.ContainsFunc(probes, func(probe any) bool { return !sameKeys(existing, index, probe) }):
			// Kubernetes' own controller shares the informer, which refuses a second index of this name.
			return store{from.GetIndexer(), name}, nil
		}
		name = "replicakit." + name // another component has an index of this name for other keys
	}
}

func sameKeys[F ~func(obj any) ([]string, error)](a, b F, probe any) bool {
	aKeys, aErr := a(probe)
	bKeys, bErr := b(probe)
	return aErr == nil && bErr == nil && slices.Equal(aKeys, bKeys)
}

// probes returns objects with a controller, without a reference, and with a reference that is no controller's, by
// which newStore compares two indexes.
func probes[T controller.Object]() ([]any, error) {
	kind := reflect.TypeFor[T]()
	if kind.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("%s is no pointer type", kind)
	}
	ref, yes := metav1.OwnerReference{Kind: "Kind", Name: "name", UID: "uid"}, true
	controlling := ref
	controlling.Controller = &yes
	var all []any
	for _, refs := range [][]metav1.OwnerReference{{controlling}, nil, {ref}} {
		probe, _ := reflect.TypeAssert[T](reflect.New(kind.Elem()))
		probe.SetNamespace("namespace")
		probe.SetOwnerReferences(refs)
		all = append(all, probe)
	}
	return all, nil
}
