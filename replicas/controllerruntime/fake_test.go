// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

// A fakeCluster is a cluster with controller-runtime's fake client. Its cache shows each change at once.
type fakeCluster struct {
	cluster.Cluster
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	client  client.WithWatch
	live    client.Reader
	cache   client.Reader
	indexer client.FieldIndexer
	events  *record.FakeRecorder
}

func newFakeCluster(funcs interceptor.Funcs, objects ...client.Object) *fakeCluster {
	f := &fakeCluster{scheme: newScheme(), mapper: newMapper(), events: record.NewFakeRecorder(1000)}
	field, extract := controllerruntime.Index(plainPools())
	f.client = fake.NewClientBuilder().WithScheme(f.scheme).WithRESTMapper(f.mapper).WithObjects(objects...).
		WithStatusSubresource(&WorkerPool{}).WithIndex(&Worker{}, field, extract).WithInterceptorFuncs(funcs).Build()
	f.live, f.cache, f.indexer = f.client, f.client, noIndexer{}
	return f
}

// noIndexer adds no index, because a fake client gets its index when it is built.
type noIndexer struct{ err error }

func (n noIndexer) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return n.err
}

// readCache is a cache that supports only reads.
type readCache struct {
	cache.Cache
	client.Reader
}

func (c readCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.Reader.Get(ctx, key, obj, opts...)
}

func (c readCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Reader.List(ctx, list, opts...)
}

func (f *fakeCluster) GetScheme() *runtime.Scheme                      { return f.scheme }
func (f *fakeCluster) GetRESTMapper() meta.RESTMapper                  { return f.mapper }
func (f *fakeCluster) GetClient() client.Client                        { return f.client }
func (f *fakeCluster) GetAPIReader() client.Reader                     { return f.live }
func (f *fakeCluster) GetCache() cache.Cache                           { return readCache{Reader: f.cache} }
func (f *fakeCluster) GetFieldIndexer() client.FieldIndexer            { return f.indexer }
func (f *fakeCluster) GetEventRecorderFor(string) record.EventRecorder { return f.events }

func (f *fakeCluster) workers(t *testing.T) []Worker {
	t.Helper()
	var list WorkerList
	require.NoError(t, f.client.List(t.Context(), &list))
	return list.Items
}

// request names the WorkerPool default/blue.
var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "blue"}}
