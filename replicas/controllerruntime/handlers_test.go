// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

func newQueue(t *testing.T) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// If a custom reconcile loop records its creations and deletions, the event handlers confirm them. The handlers
// also add the owner to the queue that they receive with the event.
func TestHandlersOfALoop(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{}, blue(2))
	store, key := &expectations.Store[expectations.Key]{}, expectations.KeyOf(blue(2))
	h, err := controllerruntime.NewHandlers(f.client, plainPools(), store)
	require.NoError(t, err)
	worker := orphan("blue-a")
	worker.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(blue(2), groupVersion.WithKind("WorkerPool"))}

	store.Set(key, expectations.Changes{Creating: []string{"blue-a"}, Deleting: []types.UID{"blue-a"}})
	q := newQueue(t)
	h.ChildEvents().Create(t.Context(), event.CreateEvent{Object: worker}, q)
	pending, _ := store.Get(key)
	assert.Equal(t, expectations.Changes{Deleting: []types.UID{"blue-a"}}, pending.Changes)
	woken, _ := q.Get()
	assert.Equal(t, request, woken)
	q.Done(woken)

	h.ChildEvents().Delete(t.Context(), event.DeleteEvent{Object: worker}, q)
	state, _ := store.State(key)
	assert.Equal(t, expectations.Satisfied, state)
	assert.Equal(t, 1, q.Len())

	store.Set(key, expectations.Changes{Creations: 1})
	h.OwnerEvents().Delete(t.Context(), event.DeleteEvent{Object: blue(2)}, q)
	_, known := store.Get(key)
	assert.False(t, known, "an owner that is gone expects nothing")
}

func TestHandlersWakeTheOwnersOfOrphans(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{}, blue(2))
	h, err := controllerruntime.NewHandlers(f.client, plainPools(), &expectations.Store[expectations.Key]{})
	require.NoError(t, err)
	q := newQueue(t)
	h.ChildEvents().Create(t.Context(), event.CreateEvent{Object: orphan("stray")}, q)
	assert.Equal(t, 1, q.Len())
}

func TestHandlersIgnoreEventsOfNothing(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{})
	made, err := controllerruntime.NewHandlers(f.client, plainPools(), &expectations.Store[expectations.Key]{})
	require.NoError(t, err)
	for _, h := range []*controllerruntime.Handlers{made, {}, nil} {
		q := newQueue(t)
		h.ChildEvents().Create(t.Context(), event.CreateEvent{}, q)
		h.ChildEvents().Update(t.Context(), event.UpdateEvent{}, q)
		h.ChildEvents().Delete(t.Context(), event.DeleteEvent{}, q)
		h.ChildEvents().Generic(t.Context(), event.GenericEvent{}, q)
		h.OwnerEvents().Delete(t.Context(), event.DeleteEvent{}, q)
		assert.Zero(t, q.Len())
		h.ChildEvents().Create(t.Context(), event.CreateEvent{Object: orphan("stray")}, nil)
	}
}

func TestNewHandlersRefuses(t *testing.T) {
	t.Parallel()
	_, err := controllerruntime.NewHandlers(nil, plainPools(), &expectations.Store[expectations.Key]{})
	require.EqualError(t, err, "controllerruntime: client is nil")
	_, err = controllerruntime.NewHandlers(newFakeCluster(interceptor.Funcs{}).client, plainPools(), nil)
	require.EqualError(t, err, "controllerruntime: store is nil")
	strange := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	_, err = controllerruntime.NewHandlers(strange, plainPools(), &expectations.Store[expectations.Key]{})
	require.ErrorContains(t, err, "controllerruntime: the scheme does not know example.com/v1, Kind=WorkerPool")
}

func TestHandlersKnowWhetherOwnersAreInANamespace(t *testing.T) {
	t.Parallel()
	pool := blue(2)
	pool.Namespace = ""
	worker := orphan("blue-a")
	worker.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, groupVersion.WithKind("WorkerPool"))}
	told, untold := plainPools(), plainPools()
	told.ClusterScoped = true
	for name, tt := range map[string]struct {
		mapper meta.RESTMapper
		kind   controller.Kind[*WorkerPool, *Worker]
		woken  int
	}{
		"the server says so":                       {mapperOf(clusterScoped("WorkerPool"), namespaced("Worker")), untold, 1},
		"nobody knows, and the Kind says so":       {mapperOf(), told, 1},
		"nobody knows, and the Kind says no":       {mapperOf(), untold, 0},
		"the server says it is in one, so is this": {mapperOf(namespaced("WorkerPool"), namespaced("Worker")), untold, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fake.NewClientBuilder().WithScheme(newScheme()).WithRESTMapper(tt.mapper).WithObjects(pool).Build()
			h, err := controllerruntime.NewHandlers(c, tt.kind, &expectations.Store[expectations.Key]{})
			require.NoError(t, err)
			q := newQueue(t)
			h.ChildEvents().Create(t.Context(), event.CreateEvent{Object: worker}, q)
			assert.Equal(t, tt.woken, q.Len())
		})
	}
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithRESTMapper(mapperOf(namespaced("WorkerPool"), namespaced("Worker"))).Build()
	_, err := controllerruntime.NewHandlers(c, told, &expectations.Store[expectations.Key]{})
	require.ErrorContains(t, err, "ClusterScoped is true")
}
