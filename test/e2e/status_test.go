// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestStatus(t *testing.T) {
	t.Parallel()

	t.Run("T2 T3 T4 T5 T8 U2 every field counts what it says", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 5))
		pods := w.has(rs, 5)
		w.runAll(pods[:3])
		w.patchPod(pods[4].Name, `{"metadata":{"labels":{"tier":"front"}}}`)
		w.patch(rs, []byte(`{"spec":{"minReadySeconds":3600,"template":{"metadata":{"labels":{"tier":"front"}}}}}`))
		w.setStatus(pods[0].Name, func(s *corev1.PodStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-2 * time.Hour))
		})
		w.reports(rs, appsv1.ReplicaSetStatus{
			Replicas: 5, FullyLabeledReplicas: 1, ReadyReplicas: 3, AvailableReplicas: 1,
			TerminatingReplicas: new(int32), ObservedGeneration: 2,
		})
		w.patch(rs, []byte(`{"spec":{"minReadySeconds":0}}`))
		w.reports(rs, appsv1.ReplicaSetStatus{
			Replicas: 5, FullyLabeledReplicas: 1, ReadyReplicas: 3, AvailableReplicas: 3,
			TerminatingReplicas: new(int32), ObservedGeneration: 3,
		})
		w.setStatus(pods[1].Name, func(s *corev1.PodStatus) { s.Conditions[0].Status = corev1.ConditionFalse })
		w.deletePod(pods[2].Name)
		one := int32(1)
		w.reports(rs, appsv1.ReplicaSetStatus{
			Replicas: 5, FullyLabeledReplicas: 2, ReadyReplicas: 1, AvailableReplicas: 1,
			TerminatingReplicas: &one, ObservedGeneration: 3,
		})
	})

	t.Run("U1 V15 nothing is written when nothing changed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 2))
		w.has(rs, 2)
		w.settle(rs)
		before := len(w.wire.writes())
		for _, note := range []string{"a", "b", "c"} {
			w.patch(rs, []byte(`{"metadata":{"annotations":{"note":"`+note+`"}}}`))
		}
		w.settle(rs)
		assert.Len(t, w.wire.writes(), before+1, "only the new generation")
	})

	t.Run("U1 Z5 a controller that starts anew finds nothing to do", func(t *testing.T) {
		t.Parallel()
		w := newWorldWith(t, settings{idle: true})
		stop := w.start()
		rs := w.create(replicaSet("web", 3))
		w.runAll(w.has(rs, 3))
		w.reports(rs, appsv1.ReplicaSetStatus{
			Replicas: 3, FullyLabeledReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
			TerminatingReplicas: new(int32), ObservedGeneration: 1,
		})
		w.settle(rs)
		stop()
		before := len(w.wire.writes())
		w.start()
		w.settle(rs)
		assert.Len(t, w.wire.writes(), before+1, "only the new generation")
	})

	t.Run("M1 M2 T5 pods become available minReadySeconds after they became ready", func(t *testing.T) {
		t.Parallel()
		const minReady = time.Hour
		w := newWorld(t)
		rs := replicaSet("web", 3)
		rs.Spec.MinReadySeconds = int32(minReady.Seconds())
		rs = w.create(rs)
		pods := w.has(rs, 3)
		since := w.whenAvailable(rs)
		now := time.Now().Truncate(time.Second) // the API stores times in whole seconds
		due := []time.Time{now.Add(4 * time.Second), now.Add(6 * time.Second), now.Add(8 * time.Second)}
		for i, pod := range pods {
			w.run(pod, "node", due[i].Add(-minReady))
		}
		running := time.Now()
		w.eventually(func(c *assert.CollectT) { assert.False(c, since(3).IsZero()) }, "all must become available")
		for i, due := range due {
			at := since(i + 1)
			assert.False(t, at.Before(due), "%d available %s too early", i+1, due.Sub(at))
			assert.Less(t, min(at.Sub(due), at.Sub(running)), patience, "%d available too late", i+1)
		}
		w.settle(rs)
		assert.LessOrEqual(t, len(w.wire.of(http.MethodPatch, "replicasets/status")), 1+3+3+3+1,
			"one for each pod that came, was ready, was available, and one for settling")
	})

	t.Run("M1 T5 a pod is available minReadySeconds after it was ready for the last time", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := replicaSet("web", 1)
		rs.Spec.MinReadySeconds = 3600
		rs = w.create(rs)
		pod := w.has(rs, 1)[0]
		since := w.whenAvailable(rs)
		w.run(pod, "node", time.Now().Add(-2*time.Hour))
		w.eventually(func(c *assert.CollectT) { assert.False(c, since(1).IsZero()) }, "available")
		w.setStatus(pod.Name, func(s *corev1.PodStatus) { s.Conditions[0].Status = corev1.ConditionFalse })
		w.eventually(func(c *assert.CollectT) { assert.True(c, since(1).IsZero()) }, "not ready")
		due := time.Now().Truncate(time.Second).Add(3 * time.Second)
		w.setStatus(pod.Name, func(s *corev1.PodStatus) {
			s.Conditions[0].Status = corev1.ConditionTrue
			s.Conditions[0].LastTransitionTime = metav1.NewTime(due.Add(-time.Hour))
		})
		w.eventually(func(c *assert.CollectT) { assert.False(c, since(1).IsZero()) }, "available again")
		assert.False(t, since(1).Before(due), "%s too early", due.Sub(since(1)))
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	t.Run("P10 P13 Z6 creations and deletions are told on the owner", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 3))
		pods := w.has(rs, 3)
		w.tells(rs, "SuccessfulCreate", "replicaset-controller", "Created pod: ", names(pods))
		w.scale(rs, 1)
		stay := names(w.has(rs, 1))
		var went []string
		for _, name := range names(pods) {
			if name != stay[0] {
				went = append(went, name)
			}
		}
		w.tells(rs, "SuccessfulDelete", "replicaset-controller", "Deleted pod: ", went)
	})
}

// tells waits for exactly one event of the reason for each pod.
func (w *world) tells(owner metav1.Object, reason, component, prefix string, pods []string) {
	w.t.Helper()
	want := make([]string, len(pods))
	for i, name := range pods {
		want[i] = prefix + name
	}
	w.eventually(func(c *assert.CollectT) {
		var got []string
		for _, event := range w.events(owner, reason) {
			got = append(got, event.Message)
			assert.Equal(c, corev1.EventTypeNormal, event.Type)
			assert.Equal(c, component, event.Source.Component)
			assert.Equal(c, owner.GetName(), event.InvolvedObject.Name)
			assert.EqualValues(c, 1, event.Count)
		}
		assert.ElementsMatch(c, want, got)
	}, "events of reason %s", reason)
}

// reports waits until the owner's status is exactly equal to want.
func (w *world) reports(owner metav1.Object, want appsv1.ReplicaSetStatus) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, want, w.report(owner).ReplicaSetStatus)
	}, "the status of %s", owner.GetName())
}

// whenAvailable watches the ReplicaSet. The returned function returns the time since when the status has reported
// n or more available replicas. If the status reports fewer, the result is the zero time.
func (w *world) whenAvailable(rs *appsv1.ReplicaSet) (since func(n int) time.Time) {
	w.t.Helper()
	var mu sync.Mutex
	times := make([]time.Time, *rs.Spec.Replicas+1)
	_, err := w.seen.Apps().V1().ReplicaSets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			for n := range times {
				if available := int(obj.(*appsv1.ReplicaSet).Status.AvailableReplicas); available < n {
					times[n] = time.Time{}
				} else if times[n].IsZero() {
					times[n] = now
				}
			}
		},
	})
	require.NoError(w.t, err)
	return func(n int) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return times[n]
	}
}
