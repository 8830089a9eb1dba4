// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

func TestQuota(t *testing.T) {
	t.Parallel()

	t.Run("K2 K3 P11 S3 T11 T12 T14 a full quota is a condition, and is forgotten when it grows", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.setQuota(2)
		rs := w.create(replicaSet("web", 6))
		w.eventually(func(c *assert.CollectT) {
			failure := condition(w.report(rs))
			require.NotNil(c, failure)
			assert.Equal(c, corev1.ConditionTrue, failure.Status)
			assert.Equal(c, "FailedCreate", failure.Reason)
			assert.Contains(c, failure.Message, "exceeded quota")
			assert.False(c, failure.LastTransitionTime.IsZero())
			assert.NotEmpty(c, w.events(rs, "FailedCreate"))
		}, "the condition")
		w.has(rs, 2)
		for _, event := range w.events(rs, "FailedCreate") {
			assert.Equal(t, corev1.EventTypeWarning, event.Type)
			assert.Contains(t, event.Message, "Error creating: pods \"web-")
			assert.Contains(t, event.Message, "exceeded quota")
		}
		assertBatches(t, w.wire.of(http.MethodPost, "pods")[:3], 1, 2) // one creation of the second batch fails, so the pass ends

		w.setQuota(10)
		w.has(rs, 6)
		w.eventually(func(c *assert.CollectT) {
			assert.Nil(c, condition(w.report(rs)))
		}, "the condition must go")
		assert.Equal(t, 6, w.history.everOwned(rs))
		assert.Less(t, len(w.wire.of(http.MethodPost, "pods")), 6+12, "a few tries, no storm")
		assert.Less(t, len(w.wire.of(http.MethodPatch, "replicasets/status")), 12, "the messages differ, the status is not written for that")
	})

	t.Run("W27 a full quota is not tried again for every event", func(t *testing.T) {
		t.Parallel()
		clock := clocktesting.NewFakeClock(time.Now()) // moves only when the test calls Step
		w := newWorldWith(t, settings{options: clientgo.Options{Clock: clock}})
		w.setQuota(2)
		rs := w.create(replicaSet("web", 2))
		w.eventually(func(c *assert.CollectT) {
			clock.Step(time.Second) // a new controller may wait for its caches by this clock
			assert.Len(c, w.active(rs), 2)
		}, "two pods")
		w.has(rs, 2)
		w.scale(rs, 3)
		w.eventually(func(c *assert.CollectT) { assert.NotNil(c, condition(w.report(rs))) }, "the condition")
		w.cachesAreFresh()
		tries := len(w.wire.of(http.MethodPost, "pods"))
		for i, pod := range w.active(rs) {
			w.run(pod, "node", clock.Now())
			w.eventually(func(c *assert.CollectT) {
				assert.EqualValues(c, i+1, w.report(rs).ReadyReplicas)
			}, "a pass")
		}
		assert.Len(t, w.wire.of(http.MethodPost, "pods"), tries)
		w.setQuota(3)
		clock.Step(time.Minute)
		w.has(rs, 3)
	})

	t.Run("D7 Y10 a full quota hinders no scale-down", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.setQuota(3)
		rs := w.create(replicaSet("web", 5))
		w.eventually(func(c *assert.CollectT) {
			assert.NotNil(c, condition(w.report(rs)))
		}, "the condition")
		w.has(rs, 3)
		w.scale(rs, 1)
		w.has(rs, 1)
		w.eventually(func(c *assert.CollectT) {
			assert.Nil(c, condition(w.report(rs)))
		}, "the condition must go")
	})
}

func condition(r report) *appsv1.ReplicaSetCondition {
	for i, c := range r.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure {
			return &r.Conditions[i]
		}
	}
	return nil
}

// setQuota limits the namespace to n pods, and waits until the quota controller knows the limit.
func (w *world) setQuota(n int64) {
	w.t.Helper()
	quotas := w.client.CoreV1().ResourceQuotas(w.namespace)
	limit := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(n, resource.DecimalSI)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: limit}}
	_, err := quotas.Create(w.t.Context(), quota, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		quota, err = quotas.Get(w.t.Context(), quota.Name, metav1.GetOptions{})
		require.NoError(w.t, err)
		quota.Spec.Hard = limit
		_, err = quotas.Update(w.t.Context(), quota, metav1.UpdateOptions{})
	}
	require.NoError(w.t, err)
	w.eventually(func(c *assert.CollectT) {
		quota, err := quotas.Get(w.t.Context(), "pods", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, limit.Pods().Value(), quota.Status.Hard.Pods().Value())
	}, "the quota controller must know the limit")
}

func TestNamespace(t *testing.T) {
	t.Parallel()
	t.Run("P11 S10 W10 a terminating namespace is left in peace", func(t *testing.T) {
		t.Parallel()
		w, begun := newWorld(t), time.Now()
		rs := replicaSet("web", 5)
		rs.Spec.Template.Finalizers = []string{finalizer}
		rs = w.create(rs)
		pods := w.has(rs, 5)
		require.NoError(t, w.client.CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}))
		w.hasTerminating(rs, 5)
		assert.Empty(t, w.active(rs))
		w.settle(rs)
		tries := w.wire.of(http.MethodPost, "pods")[5:]
		assert.NotEmpty(t, tries)
		for _, try := range tries {
			assert.Equal(t, http.StatusForbidden, try.status)
		}
		for i, pod := range pods { // each event causes a pass for the owner
			w.patchPod(pod.Name, noFinalizers)
			w.hasTerminating(rs, 4-i)
			if i == 2 {
				break
			}
		}
		w.settle(rs)
		assert.LessOrEqual(t, len(w.wire.of(http.MethodPost, "pods")), 5+3+int(time.Since(begun)/time.Minute),
			"one try for each generation of the owner, and each minute")
		assert.Nil(t, condition(w.report(rs)))
		assert.Empty(t, w.events(rs, "FailedCreate"))
		for _, pod := range pods[3:] {
			w.patchPod(pod.Name, noFinalizers)
		}
		w.eventually(func(c *assert.CollectT) {
			_, err := w.client.CoreV1().Namespaces().Get(t.Context(), w.namespace, metav1.GetOptions{})
			assert.True(c, apierrors.IsNotFound(err))
		}, "the namespace must go")
	})
}

func TestOwnerDeleted(t *testing.T) {
	t.Parallel()

	t.Run("V17 Y3 its pods go with it and nobody replaces them", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.createHeld(replicaSet("web", 3))
		w.has(rs, 3)
		w.deleteHeld(rs)
		w.eventually(func(c *assert.CollectT) {
			assert.Empty(c, w.history.find(ownedBy(rs)))
		}, "all pods must go")
		assert.Equal(t, 3, w.history.everOwned(rs))
	})

	t.Run("V17 Y3 orphaned pods stay and nobody touches them", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 3))
		pods := w.has(rs, 3)
		w.runAll(pods)
		w.delete(rs, metav1.DeletePropagationOrphan)
		w.eventually(func(c *assert.CollectT) {
			assert.Zero(c, w.report(rs))
			assert.Equal(c, uids(pods), uids(w.history.find(func(p *corev1.Pod) bool { return len(p.OwnerReferences) == 0 })))
		}, "the owner must go, its pods must stay")
		other := w.create(replicaSet("other", 1))
		w.has(other, 1)
		w.settle(other)
		assert.Len(t, w.wire.of(http.MethodPost, "pods"), 3+1)
		assert.Empty(t, w.wire.of(http.MethodDelete, "pods"))
		assert.Empty(t, w.wire.of(http.MethodPatch, "pods"))
	})

	t.Run("C2 C3 C5 Y10 while it waits for its pods it creates, deletes, adopts and releases nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.createHeld(replicaSet("web", 3))
		pods := w.has(rs, 3)
		w.runAll(pods)
		w.settle(rs)
		w.delete(rs, metav1.DeletePropagationBackground)
		before := len(w.wire.writes())
		w.createPod(orphan("late"))
		w.phase(pods[0].Name, corev1.PodFailed)
		w.patchPod(pods[1].Name, `{"metadata":{"labels":{"app":"debug"}}}`)
		w.settle(rs)
		for _, write := range w.wire.writes()[before:] {
			assert.Equal(t, "replicasets/status", write.resource)
		}
		assert.EqualValues(t, 1, w.report(rs).Replicas, "one failed, one does not match")
		assert.Equal(t, rs.UID, ownerOf(w.pod(pods[1].Name)))
	})

	t.Run("Y10 foreground deletion is not fought", func(t *testing.T) {
		t.Parallel()
		w := newWorldWith(t, settings{idle: true})
		stop := w.start()
		rs := w.create(replicaSet("web", 3))
		w.runAll(w.has(rs, 3)) // a deleted pod on a node stays until the test reaps it
		stop()
		w.delete(rs, metav1.DeletePropagationForeground)
		terminating := w.terminatingOf(rs, 3)
		w.start()
		w.hasTerminating(rs, 3)
		w.settle(rs)
		w.reap(names(terminating)...)
		w.eventually(func(c *assert.CollectT) {
			assert.Zero(c, w.report(rs))
			assert.Empty(c, w.history.find(ownedBy(rs)))
		}, "all must go")
		assert.Equal(t, 3, w.history.everOwned(rs))
	})

	t.Run("C1 V3 V16 W12 one of its name starts with pods of its own", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := w.createHeld(replicaSet("web", 3))
		w.runAll(w.has(first, 3)) // a deleted pod on a node stays until the test reaps it
		w.deleteHeld(first)
		w.eventually(func(c *assert.CollectT) { assert.Zero(c, w.report(first)) }, "the first must go")
		second := w.create(replicaSet("web", 4))
		w.has(second, 4)
		w.settle(second)
		w.reap(names(w.terminatingOf(first, 3))...)
		w.has(second, 4)
		w.settle(second)
		assert.Equal(t, 3, w.history.everOwned(first))
		assert.Equal(t, 4, w.history.everOwned(second))
	})

	t.Run("C8 V16 W12 one of its name adopts the pods that it left", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := w.create(replicaSet("web", 4))
		pods := w.has(first, 4)
		w.runAll(pods)
		w.delete(first, metav1.DeletePropagationOrphan)
		w.eventually(func(c *assert.CollectT) { assert.Zero(c, w.report(first)) }, "the first must go")
		w.cachesAreFresh()
		second := w.create(replicaSet("web", 4))
		assert.Equal(t, uids(pods), uids(w.has(second, 4)))
		assert.Equal(t, 4, w.history.everOwned(second))
	})
}

// createHeld creates a ReplicaSet with a finalizer. After a delete, the ReplicaSet still exists until the test
// removes the finalizer.
func (w *world) createHeld(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	w.t.Helper()
	rs.Finalizers = []string{finalizer}
	return w.create(rs)
}

// deleteHeld deletes a ReplicaSet of createHeld, and removes the finalizer when the controllers have seen the
// deletion. Otherwise the garbage collector might delete the pods before the controllers see the deletion. The
// controllers would then rightly replace the pods.
func (w *world) deleteHeld(rs *appsv1.ReplicaSet) {
	w.t.Helper()
	w.delete(rs, metav1.DeletePropagationBackground)
	known := w.controllers.factory.Apps().V1().ReplicaSets().Lister().ReplicaSets(w.namespace)
	w.eventually(func(c *assert.CollectT) {
		rs, err := known.Get(rs.Name)
		require.NoError(c, err)
		assert.NotNil(c, rs.DeletionTimestamp)
	}, "the controllers must know of the deletion")
	w.patch(rs, []byte(noFinalizers))
}

// terminatingOf waits until n pods of the owner are being deleted. The owner itself may already be gone.
func (w *world) terminatingOf(owner metav1.Object, n int) (terminating []*corev1.Pod) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		terminating = w.history.find(func(p *corev1.Pod) bool {
			return ownerOf(p) == owner.GetUID() && p.DeletionTimestamp != nil
		})
		assert.Len(c, terminating, n)
	}, "%d pods must be terminating", n)
	return terminating
}

func TestRefused(t *testing.T) {
	t.Parallel()
	t.Run("P8 an owner that the server accepts and no pod can come from is told so once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := replicaSet("web", 3)
		rs.Spec.Template.Labels = nil
		rs.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
		rs = w.create(rs)
		refusals := func(n int) {
			w.eventually(func(c *assert.CollectT) {
				events := w.events(rs, "InvalidTemplate")
				require.Len(c, events, 1)
				assert.Equal(c, corev1.EventTypeWarning, events[0].Type)
				assert.Contains(c, events[0].Message, "labels")
				assert.EqualValues(c, n, events[0].Count)
			}, "%d refusals", n)
		}
		refusals(1)
		for _, note := range []string{"a", "b", "c"} { // these changes cause passes that report nothing new
			w.patch(rs, []byte(`{"metadata":{"annotations":{"note":"`+note+`"}}}`))
		}
		w.patch(rs, []byte(`{"spec":{"replicas":4}}`))
		refusals(2)
		assert.Empty(t, w.wire.writes())
		w.ceiling[rs.UID] = 4
		w.patch(rs, []byte(`{"spec":{"template":{"metadata":{"labels":{"tier":"front"}}}}}`))
		w.has(rs, 4)
	})
}
