// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
)

// If a child becomes ready, a pass runs when the child becomes available. The event handlers add a delayed wake of
// the owner to the queue, but the queue may lose this wake. A work queue keeps only the earliest of several
// delayed wakes of an owner. If the owner is already due, a priority queue drops each delayed wake of the owner.
func TestAChildIsLookedAtWhenItIsAvailable(t *testing.T) {
	t.Parallel()
	for name, newQueue := range map[string]func() queue{
		"work queue": func() queue {
			return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		},
		"priority queue": func() queue { return priorityqueue.New[reconcile.Request]("availability") },
	} {
		t.Run("M1 M5 with a "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				defer q.ShutDown()
				var passes []time.Duration
				start := time.Now()
				kind := settles()
				kind.Observe = func(context.Context, controller.Pass[*WorkerPool, *Worker]) {
					passes = append(passes, time.Since(start).Round(time.Second))
				}
				workers := []*Worker{ownedWorker("blue-a"), ownedWorker("blue-b")}
				f := newFakeCluster(interceptor.Funcs{}, blue(2), workers[0], workers[1])
				r, err := controllerruntime.New(f, kind, controllerruntime.Options{Name: t.Name()})
				require.NoError(t, err)
				becomesReady := func(w *Worker) {
					was := *w
					w.Status.Ready = true
					require.NoError(t, f.client.Update(t.Context(), w))
					r.ChildEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: &was, ObjectNew: w}, q)
				}
				becomesReady(workers[0])
				work(t, q, r, 5*time.Second)
				becomesReady(workers[1])
				work(t, q, r, 20*time.Second)
				assert.Subset(t, passes, []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second})
			})
		})
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// The function work calls Reconcile for each request in the queue when the request is due. The function returns
// after the duration d.
func work(t *testing.T, q queue, r reconcile.Reconciler, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for synctest.Wait(); q.Len() > 0; synctest.Wait() {
			req, _ := q.Get()
			result, err := r.Reconcile(t.Context(), req)
			require.NoError(t, err)
			if result.RequeueAfter > 0 {
				q.AddAfter(req, result.RequeueAfter)
			}
			q.Done(req)
		}
	}
}

func ownedWorker(name string) *Worker {
	w := orphan(name)
	w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(blue(2), groupVersion.WithKind("WorkerPool"))}
	return w
}

// settles returns the Kind of pools, except that a Worker is available only after it has been ready for ten
// seconds.
func settles() controller.Kind[*WorkerPool, *Worker] {
	kind := plainPools()
	spec := kind.Spec
	kind.Spec = func(p *WorkerPool) (specOf, error) {
		s, err := spec(p)
		s.MinReadySeconds, s.Rules.Ready = 10, func(w *Worker) bool { return w.Status.Ready }
		return s, err
	}
	return kind
}
