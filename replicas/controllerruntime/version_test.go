// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

// A telling cluster has a cache that returns the given informer. In controller-runtime 0.24 and later, the indexer
// of an informer reports the version of the cache, unless the cache is limited to several namespaces.
type telling struct {
	*fakeCluster
	informer cache.Informer
}

func (c telling) GetCache() cache.Cache { return tellingCache{readCache{Reader: c.cache}, c.informer} }

type tellingCache struct {
	readCache
	informer cache.Informer
}

func (c tellingCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer, nil
}

type indexedInformer struct {
	cache.Informer
	indexer toolscache.Indexer
}

func (i indexedInformer) GetIndexer() toolscache.Indexer { return i.indexer }

type versioned struct {
	toolscache.Indexer
	version string
}

func (v versioned) LastStoreSyncResourceVersion() string { return v.version }

func TestTheVersionOfTheCache(t *testing.T) {
	t.Parallel()
	const small = "GET /apis/example.com/v1/namespaces/default/workers?limit=1 "
	for name, tt := range map[string]struct {
		informer cache.Informer
		asks     bool
	}{
		"told by an informer, it saves a live list":       {indexedInformer{indexer: versioned{version: "5"}}, true},
		"not told yet, it is not known":                   {indexedInformer{indexer: versioned{}}, false},
		"not told by an older release, it is not known":   {indexedInformer{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)}, false},
		"of several namespaces not told, it is not known": {struct{ cache.Informer }{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s := clusterOver(t, func(method, path string, body map[string]any) (int, any) {
				if strings.HasSuffix(path, "/workerpools/blue") {
					return http.StatusOK, blue(1)
				}
				if method == http.MethodGet {
					kind := "WorkerList"
					if strings.HasSuffix(path, "/workerpools?limit=1") {
						kind = "WorkerPoolList"
					}
					return http.StatusOK, map[string]any{"apiVersion": "example.com/v1", "kind": kind, "metadata": map[string]any{"resourceVersion": "5"}}
				}
				if method == http.MethodPatch {
					return http.StatusOK, blue(1)
				}
				return http.StatusOK, stored(body)
			}, blue(1))
			r, err := controllerruntime.New(telling{f, tt.informer}, plainPools(), controllerruntime.Options{Name: t.Name()})
			require.NoError(t, err)
			_, err = r.Reconcile(t.Context(), request)
			require.NoError(t, err)
			require.NotEmpty(t, s.requests)
			assert.Equal(t, tt.asks, s.requests[0] == small, s.requests[0])
			assert.Contains(t, s.requests[1], "GET /apis/example.com/v1/namespaces/default/workerpools?limit=1")
			assert.Contains(t, s.requests[2], "POST ", "the owner is newer than that list")
		})
	}
}
