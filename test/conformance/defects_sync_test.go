// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/replicakit/replicakit/replicas/clientgo"
	kit "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

func TestSyncDefects(t *testing.T) {
	t.Parallel()
	inBubbles(t, "W51 a pass that waits for a cache is no error, and soon looks again", func(t bubble) {
		s := newStores(nil)
		s.do(write{Do: "write", Owner: "web", UID: "owner", Resource: "pods", Version: "5"})
		c := web(1, 0)
		theirs := t.theirPass(c, func(rsc *replicaset.ReplicaSetController) { *upstream.ConsistencyStore(rsc) = s.theirs })
		require.Error(t, theirs.err, "for the rate limiter")

		c = web(1, 1)
		c.RS.ResourceVersion = "5" // the answer to the status write has this version
		ours := t.ours(c)
		require.NoError(t, ours.pass().err)
		before := c.RS.DeepCopy()
		before.ResourceVersion = "1"
		ours.cache.scene.RS = before
		waits := ours.pass()
		require.NoError(t, waits.err)
		assert.Equal(t, 1, waits.gates(kit.OwnWriteNotSeen))
		assert.True(t, waits.pass.Waiting())
		assert.Equal(t, 50*time.Millisecond, waits.again)
	})
	inBubbles(t, "W55 handlers that cannot be added are an error", func(t bubble) {
		ctx, cancel := context.WithCancel(quiet(t.Context()))
		w := newWorld(false)
		factory := informers.NewSharedInformerFactory(w, 0)
		sets, pods := factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods()
		sets.Informer()
		pods.Informer()
		factory.Start(ctx.Done())
		synctest.Wait()
		cancel()
		factory.Shutdown()
		theirs := replicaset.NewReplicaSetController(ctx, sets, pods, w, 500)
		(*upstream.Queue(theirs)).ShutDown() // this controller gets no events, because the informers are stopped
		_, err := clientgo.NewReplicaSetController(ctx, sets, pods, w, 500)
		assert.Error(t, err)
	})
	t.Run("W56 two controllers of a process can have metrics", func(t *testing.T) {
		t.Parallel()
		var complaints []string
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { complaints = append(complaints, args) }, funcr.Options{}))
		registry := prometheus.NewRegistry()
		for range 2 {
			client := fake.NewClientset()
			factory := informers.NewSharedInformerFactory(client, 0)
			sets, pods := factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods()
			replicaset.NewReplicaSetController(ctx, sets, pods, client, 500)
			_, err := clientgo.New(quiet(ctx), kit.ReplicaSets(), typed.NewClient(client.AppsV1().ReplicaSets, client.CoreV1().Pods),
				sets.Informer(), pods.Informer(), clientgo.Options{MetricsRegisterer: registry})
			require.NoError(t, err)
		}
		require.NotEmpty(t, complaints)
		assert.Contains(t, complaints[0], "unable to register metrics")
	})
	inBubbles(t, "V7 W57 who loses a pod as its deletion begins is woken by that, and not by nil labels that became empty ones", func(t bubble) {
		rs := web(0, 0).RS
		old := runningPod(rs, 0)
		old.Labels = nil
		cur := old.DeepCopy()
		cur.ResourceVersion = "2"
		cur.OwnerReferences, cur.DeletionTimestamp = nil, new(metav1.NewTime(time.Now()))

		factory := informers.NewSharedInformerFactory(t.switchboard, 0)
		sets := factory.Apps().V1().ReplicaSets()
		must(sets.Informer().GetIndexer().Add(rs))
		theirs := replicaset.NewReplicaSetController(quiet(t.Context()), sets, factory.Core().V1().Pods(), t.switchboard, 500)
		upstream.UpdatePod(theirs, logr.Discard(), old, cur)
		assert.Zero(t, (*upstream.Queue(theirs)).Len(), "it does not hear of it")
		relabelled := cur.DeepCopy()
		relabelled.Labels = map[string]string{}
		upstream.UpdatePod(theirs, logr.Discard(), old, relabelled)
		assert.Equal(t, 1, (*upstream.Queue(theirs)).Len())
		(*upstream.Queue(theirs)).ShutDown()

		ours := t.ours(scene{RS: rs})
		require.NoError(t, ours.ChildUpdated(old, cur))
		assert.Len(t, ours.woken, 1)
	})
	inBubbles(t, "W58 a pod without a transition time is not waited for again and again", func(t bubble) {
		c := web(1, 1)
		c.RS.Spec.MinReadySeconds = 10
		c.Pods[0].Status.Conditions[0].LastTransitionTime = metav1.Time{}
		assert.Equal(t, 10*time.Second, t.theirPass(c).again)
		assert.Zero(t, t.ourPass(c).again)
	})
	t.Run("W59 a key that cannot be parsed is not tried for ever", func(t *testing.T) {
		t.Parallel()
		deleted := map[string]int{}
		for side, m := range map[string]maker{"theirs": theirs, "ours": ours} {
			synctest.Test(t, func(*testing.T) {
				w, c := newWorld(false), web(0, 1)
				c.RS.Name, c.Pods[0].OwnerReferences[0].Name = "web/1", "web/1"
				w.updateSet(c.RS)
				w.stamp(c.Pods[0])
				must(w.tracker.Create(podResource, c.Pods[0], "a"))
				stop := w.start(m, 500)
				deleted[side] = w.calls["delete pods"]
				stop()
			})
		}
		assert.Equal(t, map[string]int{"theirs": 0, "ours": 1}, deleted)
	})
}
