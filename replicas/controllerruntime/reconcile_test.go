// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

func blue(replicas int32) *WorkerPool {
	return &WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue", UID: "blue-uid"}, Spec: WorkerPoolSpec{Replicas: replicas}}
}

func orphan(name string) *Worker {
	return &Worker{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"pool": "blue"}}}
}

func newReconciler(t *testing.T, f *fakeCluster, opts controllerruntime.Options) *controllerruntime.Reconciler[*WorkerPool, *Worker] {
	t.Helper()
	opts.Name = t.Name()
	r, err := controllerruntime.New(f, plainPools(), opts)
	require.NoError(t, err)
	return r
}

func TestControllersOfOneNameThatBeginAtOnce(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{})
	var begun sync.WaitGroup
	for range 8 {
		begun.Go(func() {
			for range 8 {
				_, err := controllerruntime.New(f, plainPools(), controllerruntime.Options{Name: t.Name()})
				assert.NoError(t, err, "the last one serves metrics")
			}
		})
	}
	begun.Wait()
}

func TestReconcileOverAFakeClient(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{}, blue(3), orphan("stray"))
	r := newReconciler(t, f, controllerruntime.Options{})
	ctx := t.Context()

	result, err := r.Reconcile(ctx, request)
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter, "it comes back when what it created should be there")
	workers := f.workers(t)
	require.Len(t, workers, 3, "one adopted, two created")
	for _, g := range workers {
		assert.Equal(t, types.UID("blue-uid"), metav1.GetControllerOf(&g).UID, g.Name)
	}

	var pool WorkerPool
	_, err = r.Reconcile(ctx, request)
	require.NoError(t, err)
	require.NoError(t, f.client.Get(ctx, request.NamespacedName, &pool))
	assert.Equal(t, int32(3), pool.Status.Replicas)

	pool.Spec.Replicas = 1
	require.NoError(t, f.client.Update(ctx, &pool))
	_, err = r.Reconcile(ctx, request)
	require.NoError(t, err)
	assert.Len(t, f.workers(t), 1)
	assert.Len(t, f.events.Events, 4, "two created, two deleted")
}

// A named client is the Client of a Kind that gives each child an annotation.
type named struct {
	controller.Client[*WorkerPool, *Worker]
}

func (c named) Create(ctx context.Context, w *Worker) (*Worker, error) {
	w.Annotations = map[string]string{"made": "by the operator"}
	return c.Client.Create(ctx, w)
}

func TestTheClientOfTheKind(t *testing.T) {
	t.Parallel()
	f, kind := newFakeCluster(interceptor.Funcs{}, blue(3)), plainPools()
	kind.Client = func(client controller.Client[*WorkerPool, *Worker]) controller.Client[*WorkerPool, *Worker] {
		return named{client}
	}
	r, err := controllerruntime.New(f, kind, controllerruntime.Options{Name: t.Name()})
	require.NoError(t, err)
	_, err = r.Reconcile(t.Context(), request)
	require.NoError(t, err)
	workers := f.workers(t)
	require.Len(t, workers, 3)
	for _, w := range workers {
		assert.Equal(t, "by the operator", w.Annotations["made"], w.Name)
	}
	kind.Client = func(controller.Client[*WorkerPool, *Worker]) controller.Client[*WorkerPool, *Worker] { return nil }
	_, err = controllerruntime.New(f, kind, controllerruntime.Options{Name: t.Name()})
	require.EqualError(t, err, "controller: kind WorkerPool: Client returned nil")
}

// If no event reports that a child was created or deleted, the next pass confirms the change from a list that it
// reads from the cache.
func TestSettledFromLists(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{}, blue(3))
	r := newReconciler(t, f, controllerruntime.Options{})
	ctx := t.Context()

	for _, replicas := range []int32{3, 5, 2, 4} {
		var pool WorkerPool
		require.NoError(t, f.client.Get(ctx, request.NamespacedName, &pool))
		pool.Spec.Replicas = replicas
		require.NoError(t, f.client.Update(ctx, &pool))
		_, err := r.Reconcile(ctx, request)
		require.NoError(t, err)
		assert.Len(t, f.workers(t), int(replicas), "what the pass before did is settled")
	}
}

// If the cache does not show the new children yet, a list from the cache does not confirm their creation. No
// child is created twice.
func TestAListThatIsOldSettlesNothing(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{}, blue(3))
	old := newFakeCluster(interceptor.Funcs{}, blue(3))
	f.cache = old.client
	r := newReconciler(t, f, controllerruntime.Options{})

	for range 5 {
		_, err := r.Reconcile(t.Context(), request)
		require.NoError(t, err)
		assert.Len(t, f.workers(t), 3)
	}
}

// A hungWatch has a cache that never shows the three children of the first pass. Its server accepts the deletion
// of these children but keeps them, as if they had a finalizer.
type hungWatch struct {
	t       *testing.T
	cache   *fakeCluster
	server  *fakeCluster
	r       *controllerruntime.Reconciler[*WorkerPool, *Worker]
	now     time.Time
	deletes atomic.Int64
}

func newHungWatch(t *testing.T) *hungWatch {
	t.Helper()
	h := &hungWatch{t: t, cache: newFakeCluster(interceptor.Funcs{}, blue(3)), now: time.Now()}
	f := newFakeCluster(interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		h.deletes.Add(1)
		return nil
	}}, blue(3))
	f.cache, h.server = h.cache.client, f
	h.r = newReconciler(t, f, controllerruntime.Options{Controller: controller.Options{Now: func() time.Time { return h.now }}})
	h.reconcile()
	require.Len(t, f.workers(t), 3)
	for _, g := range f.workers(t) {
		g.UID = types.UID(g.Name)
		require.NoError(t, f.client.Update(t.Context(), &g))
	}
	return h
}

func (h *hungWatch) reconcile() {
	h.t.Helper()
	_, err := h.r.Reconcile(h.t.Context(), request)
	require.NoError(h.t, err)
}

// scaleToOne sets spec.replicas to 1, both on the server and in the cache.
func (h *hungWatch) scaleToOne() {
	h.t.Helper()
	for _, f := range []*fakeCluster{h.server, h.cache} {
		pool := blue(1)
		require.NoError(h.t, f.client.Get(h.t.Context(), request.NamespacedName, pool))
		pool.Spec.Replicas = 1
		require.NoError(h.t, f.client.Update(h.t.Context(), pool))
	}
}

// If the watch hangs until the expectations expire, the next pass lists the children live. In this test, the pass
// then deletes two of the three children. The cache has never shown these two children, so their absence from the
// cache does not confirm their deletion.
func TestDeletedBeforeTheCacheHadIt(t *testing.T) {
	t.Parallel()
	h := newHungWatch(t)
	h.scaleToOne()
	h.now = h.now.Add(10 * time.Minute)
	for range 6 {
		h.reconcile()
		assert.EqualValues(t, 2, h.deletes.Load(), "chosen from a live list, and not settled yet")
	}
}

// If only a live list of an earlier pass has shown the deleted children, their absence from the cache does not
// confirm their deletion.
func TestDeletedLaterBeforeTheCacheHadIt(t *testing.T) {
	t.Parallel()
	h := newHungWatch(t)
	h.now = h.now.Add(10 * time.Minute)
	h.reconcile() // this pass lists the children live and changes nothing
	h.scaleToOne()
	h.now = h.now.Add(time.Minute)
	h.reconcile() // this pass learns that the cache lacks the status write, too
	h.now = h.now.Add(time.Minute)
	for range 5 {
		h.reconcile()
		assert.EqualValues(t, 2, h.deletes.Load())
	}
}

// If the error of a pass contains the server's Retry-After, the rate limiter returns this delay once.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	busy := apierrors.NewTooManyRequests("busy", 7)
	f := newFakeCluster(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return busy
	}}, blue(1))
	r := newReconciler(t, f, controllerruntime.Options{})

	_, err := r.Reconcile(t.Context(), request)
	require.ErrorIs(t, err, busy)
	limiter := r.RateLimiter()
	assert.Equal(t, 7*time.Second, limiter.When(request))
	assert.Less(t, limiter.When(request), time.Second, "it was told once")

	_, err = r.Reconcile(t.Context(), request)
	require.NoError(t, err, "creations are held, which is no error")
}

func TestRateLimiterForgets(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewTooManyRequests("busy", 7)
	}}, blue(1))
	r := newReconciler(t, f, controllerruntime.Options{})
	_, err := r.Reconcile(t.Context(), request)
	require.Error(t, err)
	r.RateLimiter().Forget(request)
	assert.Less(t, r.RateLimiter().When(request), time.Second)
}

func TestWithoutAnOwner(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(interceptor.Funcs{})
	result, err := newReconciler(t, f, controllerruntime.Options{}).Reconcile(t.Context(), request)
	require.NoError(t, err)
	assert.Zero(t, result)
}

func TestErrorsOfTheCacheAreReturned(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	f := newFakeCluster(interceptor.Funcs{}, blue(1))
	f.cache = newFakeCluster(interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
		return lost
	}}, blue(1)).client
	_, err := newReconciler(t, f, controllerruntime.Options{}).Reconcile(t.Context(), request)
	require.ErrorIs(t, err, lost)
	require.ErrorContains(t, err, `Worker in namespace "default"`)
}

// If a child is adopted or orphaned between two lists from the cache, at least one of the lists contains the
// child.
func TestAChildThatMovesIsFound(t *testing.T) {
	t.Parallel()
	for name, adopted := range map[string]bool{"it is adopted": true, "it is orphaned": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stray := orphan("stray")
			ref := []metav1.OwnerReference{*metav1.NewControllerRef(blue(1), groupVersion.WithKind("WorkerPool"))}
			if !adopted {
				stray.OwnerReferences = ref
			}
			lists := 0
			f := newFakeCluster(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...)
				if lists++; (lists == 1 && adopted) || (lists == 2 && !adopted) {
					var moved Worker
					err = errors.Join(err, c.Get(ctx, client.ObjectKeyFromObject(stray), &moved))
					moved.OwnerReferences = nil
					if adopted {
						moved.OwnerReferences = ref
					}
					err = errors.Join(err, c.Update(ctx, &moved))
				}
				return err
			}}, blue(1), stray)
			_, err := newReconciler(t, f, controllerruntime.Options{}).Reconcile(t.Context(), request)
			require.NoError(t, err)
			assert.Len(t, f.workers(t), 1, "none was created in its stead")
		})
	}
}

func TestKindsThatDoNotWork(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		change func(*fakeCluster, *controller.Kind[*WorkerPool, *Worker])
		want   string
	}{
		"the scheme does not know the owners":         {func(f *fakeCluster, k *controller.Kind[*WorkerPool, *Worker]) { k.Owner.Kind = "Puddle" }, `Kind=Puddle`},
		"the scheme does not know the children":       {func(f *fakeCluster, k *controller.Kind[*WorkerPool, *Worker]) { k.Child.Group = "other.com" }, `other.com/v1, Kind=Worker`},
		"the scheme knows the owners as another type": {func(f *fakeCluster, k *controller.Kind[*WorkerPool, *Worker]) { k.Owner.Kind = "Worker" }, `is a *controllerruntime_test.Worker in the scheme, want *controllerruntime_test.WorkerPool`},
		"no uncached reader":                          {func(f *fakeCluster, _ *controller.Kind[*WorkerPool, *Worker]) { f.live = nil }, `kind WorkerPool: the cluster has no uncached reader`},
		"the cache takes no index":                    {func(f *fakeCluster, _ *controller.Kind[*WorkerPool, *Worker]) { f.indexer = noIndexer{refused} }, `the index "replicakit/controllerOf/WorkerPool.example.com" of Worker: refused`},
		"Add was called before for the same kind": {func(f *fakeCluster, _ *controller.Kind[*WorkerPool, *Worker]) {
			f.indexer = noIndexer{errors.New("indexer conflict: map[x:{}]")}
		}, `controllerruntime: kind WorkerPool: the cluster has a controller of this kind already: call Add or New once for each kind and cluster: indexer conflict`},
		"no Spec": {func(_ *fakeCluster, k *controller.Kind[*WorkerPool, *Worker]) { k.Spec = nil }, `kind WorkerPool has no Spec`},
		"the server does not serve the owners": {func(f *fakeCluster, _ *controller.Kind[*WorkerPool, *Worker]) {
			f.mapper = mapperOf(namespaced("Worker"))
		}, `kind WorkerPool: no matches for kind "WorkerPool"`},
		"the server does not serve the children": {func(f *fakeCluster, _ *controller.Kind[*WorkerPool, *Worker]) {
			f.mapper = mapperOf(namespaced("WorkerPool"))
		}, `child Worker: no matches`},
		"owners are in a namespace": {func(_ *fakeCluster, k *controller.Kind[*WorkerPool, *Worker]) { k.ClusterScoped = true }, `kind WorkerPool: ClusterScoped is true, but the server has it in namespaces`},
		"children are in no namespace": {func(f *fakeCluster, _ *controller.Kind[*WorkerPool, *Worker]) {
			f.mapper = mapperOf(namespaced("WorkerPool"), clusterScoped("Worker"))
		}, `kind WorkerPool is namespaced, but its child kind Worker is cluster-scoped`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, kind := newFakeCluster(interceptor.Funcs{}), plainPools()
			tt.change(f, &kind)
			_, err := controllerruntime.New(f, kind, controllerruntime.Options{Name: t.Name()})
			require.ErrorContains(t, err, tt.want)
		})
	}
	_, err := controllerruntime.New(nil, plainPools(), controllerruntime.Options{})
	require.ErrorContains(t, err, "cluster is nil")
	require.ErrorContains(t, controllerruntime.Add(nil, plainPools(), controllerruntime.Options{}), "manager is nil")
}

func TestReconcilersThatNewDidNotMake(t *testing.T) {
	t.Parallel()
	for _, r := range []*controllerruntime.Reconciler[*WorkerPool, *Worker]{nil, {}} {
		_, err := r.Reconcile(t.Context(), request)
		require.EqualError(t, err, "controllerruntime: New did not make this Reconciler")
		q := newQueue(t)
		r.ChildEvents().Create(t.Context(), event.CreateEvent{Object: orphan("stray")}, q)
		r.OwnerEvents().Create(t.Context(), event.CreateEvent{Object: blue(1)}, q)
		assert.Zero(t, q.Len())
		assert.Positive(t, r.RateLimiter().When(request))
	}
}

// If New in a Spec returns a child in another namespace, the pass fails. The error contains that namespace.
func TestAChildOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	f, kind := newFakeCluster(interceptor.Funcs{}, blue(1)), plainPools()
	spec := kind.Spec
	kind.Spec = func(p *WorkerPool) (s specOf, err error) {
		s, err = spec(p)
		s.New = func(string) (*Worker, error) {
			g := orphan("")
			g.Namespace = "elsewhere"
			return g, nil
		}
		return s, err
	}
	r, err := controllerruntime.New(f, kind, controllerruntime.Options{Name: t.Name()})
	require.NoError(t, err)
	_, err = r.Reconcile(t.Context(), request)
	require.ErrorContains(t, err, `WorkerPool "default/blue": new child 0: its namespace is "elsewhere", the owner's is "default"`)
}

// With a fake client, objects have no UIDs. If an object is deleted and created again, its resourceVersion is 1,
// even if the resourceVersion of the first object was higher. In this test, the worker was created again on the
// server, but the cache still holds the first worker. The resourceVersion of the worker is therefore lower on the
// server than in the cache. The lower resourceVersion does not prove that the server was restored from a backup.
func TestAFakeClientProvesNoRestore(t *testing.T) {
	t.Parallel()
	pool, worker := blue(3), orphan("a")
	pool.UID, pool.Generation, worker.UID = "", 1, ""
	worker.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, groupVersion.WithKind("WorkerPool"))}
	f := newFakeCluster(interceptor.Funcs{}, pool.DeepCopyObject().(client.Object), worker.DeepCopyObject().(client.Object))
	f.cache = newFakeCluster(interceptor.Funcs{}, pool.DeepCopyObject().(client.Object), worker.DeepCopyObject().(client.Object)).client
	for _, obj := range []client.Object{pool, worker} {
		require.NoError(t, f.client.Delete(t.Context(), obj))
		obj.SetResourceVersion("")
		require.NoError(t, f.client.Create(t.Context(), obj))
		require.Equal(t, "1", obj.GetResourceVersion())
	}
	_, err := newReconciler(t, f, controllerruntime.Options{}).Reconcile(t.Context(), request)
	require.NoError(t, err)
	assert.Len(t, f.workers(t), 3)
}

// If the server was restored from a backup, Reconcile returns a terminal error, so that the queue does not retry
// the owner. Each further pass would return the same error.
func TestARestoredServerIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	cached, worker := blue(0), orphan("a")
	cached.ResourceVersion = "2000"
	worker.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cached, groupVersion.WithKind("WorkerPool"))}
	f := newFakeCluster(interceptor.Funcs{}, blue(0), worker)
	f.cache = newFakeCluster(interceptor.Funcs{}, cached, worker).client
	var noticed error
	opts := controllerruntime.Options{}
	opts.Controller.OnRestored = func(err error) { noticed = err }
	result, err := newReconciler(t, f, opts).Reconcile(t.Context(), request)
	require.ErrorIs(t, err, controller.ErrRestored)
	require.ErrorIs(t, err, reconcile.TerminalError(nil))
	assert.Zero(t, result)
	require.ErrorIs(t, noticed, controller.ErrRestored)
}

// After a gap in the watch, a list of an API server that is behind may lack a child that exists. controller-runtime
// then reports a deletion with DeleteStateUnknown, which must not prove that the server was restored from a backup.
func TestADeletionOfUnknownStateProvesNothing(t *testing.T) {
	t.Parallel()
	for name, unknown := range map[string]bool{"a deletion that the watch has sent": false, "a deletion that the watch has missed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := orphan("a")
			worker.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(blue(2), groupVersion.WithKind("WorkerPool"))}
			f := newFakeCluster(interceptor.Funcs{}, blue(2), worker)
			f.cache = newFakeCluster(interceptor.Funcs{}, blue(2)).client
			opts := controllerruntime.Options{}
			opts.Controller.UnfilteredChildren = true
			r := newReconciler(t, f, opts)
			q := newQueue(t)
			r.ChildEvents().Delete(t.Context(), event.DeleteEvent{Object: worker, DeleteStateUnknown: unknown}, q)
			assert.Equal(t, 1, q.Len(), "the owner is woken")
			_, err := r.Reconcile(t.Context(), request)
			if !unknown {
				require.ErrorIs(t, err, controller.ErrRestored)
				return
			}
			require.NoError(t, err)
			assert.Len(t, f.workers(t), 2)
		})
	}
}
