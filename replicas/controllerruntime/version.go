// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tellVersions sets the functions that report up to which resourceVersions the view's cache has come.
func (v *view[O, C]) tellVersions(from cache.Cache) error {
	owner, err := v.owners.empty()
	if err != nil {
		return err
	}
	child, err := v.children.empty()
	if err != nil {
		return err
	}
	v.ownersVersion, v.childrenVersion = versionOf(from, owner), versionOf(from, child)
	return nil
}

// versionOf returns a function that reports the resourceVersion that the cache has reached for one kind, or "" if
// the cache does not say so: caches do from controller-runtime 0.24 on, unless they have several namespaces.
func versionOf(from cache.Cache, kind client.Object) func() string {
	indexed, ok := informerOf(from, kind).(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return unknown
	}
	store, ok := indexed.GetIndexer().(interface{ LastStoreSyncResourceVersion() string })
	if !ok {
		return unknown
	}
	return store.LastStoreSyncResourceVersion
}

func unknown() string { return "" }

// syncedOf returns a function that reports the last resourceVersion that the watch of a kind has received, or nil if
// the informer does not say so, as in a cache for several namespaces.
func syncedOf(from cache.Cache, kind client.Object) func() string {
	informer, ok := informerOf(from, kind).(interface{ LastSyncResourceVersion() string })
	if !ok {
		return nil
	}
	return informer.LastSyncResourceVersion
}

// informerOf returns the informer of a kind, or nil if the cache has none.
func informerOf(from cache.Cache, kind client.Object) (informer cache.Informer) {
	// The cache of a test may be a struct with the methods of a reader alone, whose GetInformer panics.
	defer func() {
		if recover() != nil {
			informer = nil
		}
	}()
	informer, err := from.GetInformer(context.Background(), kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil
	}
	return informer
}
