// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReplicationController(t *testing.T) {
	t.Parallel()

	t.Run("A1 A2 P17 up, down and to zero", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rc := w.createController(replicationController("web", 3))
		pods := w.has(rc, 3)
		assert.Equal(t, []metav1.OwnerReference{*metav1.NewControllerRef(rc, corev1.SchemeGroupVersion.WithKind("ReplicationController"))}, pods[0].OwnerReferences)
		w.scale(rc, 7)
		w.has(rc, 7)
		w.scale(rc, 2)
		w.has(rc, 2)
		w.scale(rc, 0)
		w.has(rc, 0)
		w.settle(rc)
		assert.Equal(t, 7, w.history.everOwned(rc))
	})

	t.Run("A9 C8 C23 the selector is of equality alone, and adopts what has all of it", func(t *testing.T) {
		t.Parallel()
		w := newWorldWith(t, settings{idle: true})
		rc := replicationController("web", 2)
		rc.Spec.Selector["tier"] = "front"
		rc.Spec.Template.Labels["tier"] = "front"
		w.createPod(orphan("half"))
		whole := orphan("whole")
		whole.Labels["tier"], whole.Labels["more"] = "front", "than-that"
		whole = w.createPod(whole)
		rc = w.createController(rc)
		w.start()
		assert.Contains(t, names(w.has(rc, 2)), "whole")
		w.settle(rc)
		assert.Empty(t, w.pod("half").OwnerReferences)
		patches := w.wire.of(http.MethodPatch, "pods")
		require.Len(t, patches, 1)
		assert.Equal(t, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ReplicationController","name":"web","uid":"`+
			string(rc.UID)+`","controller":true,"blockOwnerDeletion":true}],"uid":"`+string(whole.UID)+`"}}`, patches[0].body)

		w.patchPod("whole", `{"metadata":{"labels":{"tier":"back"}}}`)
		w.podIs("whole", "released", func(p *corev1.Pod) bool { return len(p.OwnerReferences) == 0 })
		w.has(rc, 2)
	})

	t.Run("A7 L1 R6 pods beside many siblings go first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		owner := *metav1.NewControllerRef(w.createDeployment("front"), appsv1.SchemeGroupVersion.WithKind("Deployment"))
		old, current := replicationController("web-1", 3), replicationController("web-2", 4)
		old.OwnerReferences, current.OwnerReferences = []metav1.OwnerReference{owner}, []metav1.OwnerReference{owner}
		old, current = w.createController(old), w.createController(current)
		now := time.Now()
		for i, pod := range w.has(old, 3) {
			w.run(pod, "node-"+strconv.Itoa(3-i/2), now) // two on node-3, one on node-2
		}
		pods := w.has(current, 4)
		for i, pod := range pods {
			w.run(pod, "node-"+strconv.Itoa(i), now)
		}
		w.settle(current)
		w.scale(current, 3)
		assert.Equal(t, names(pods[:3]), names(w.has(current, 3)))
		w.scale(current, 2)
		assert.Equal(t, names(pods[:2]), names(w.has(current, 2)))
	})

	t.Run("A4 A8 T11 T14 conditions, and a status without terminatingReplicas", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.setQuota(1)
		rc := w.createController(replicationController("web", 3))
		w.eventually(func(c *assert.CollectT) {
			failure := condition(w.report(rc))
			require.NotNil(c, failure)
			assert.Equal(c, corev1.ConditionTrue, failure.Status)
			assert.Equal(c, "FailedCreate", failure.Reason)
			assert.Contains(c, failure.Message, "exceeded quota")
		}, "the condition")
		w.setQuota(5)
		pods := w.has(rc, 3)
		w.runAll(pods)
		w.deletePod(pods[0].Name)
		w.reports(rc, appsv1.ReplicaSetStatus{
			Replicas: 3, FullyLabeledReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 2, ObservedGeneration: 1,
		})
		raw, err := w.client.CoreV1().RESTClient().Get().Namespace(w.namespace).Resource("replicationcontrollers").Name("web").
			SetHeader("Accept", "application/json").DoRaw(t.Context())
		require.NoError(t, err)
		var object struct {
			Status map[string]any `json:"status"`
		}
		require.NoError(t, json.Unmarshal(raw, &object))
		assert.NotContains(t, object.Status, "terminatingReplicas")
		assert.NotContains(t, object.Status, "conditions")
	})

	t.Run("A3 P10 P13 Z6 events are about the ReplicationController", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rc := w.createController(replicationController("web", 2))
		pods := w.has(rc, 2)
		w.tells(rc, "SuccessfulCreate", "replication-controller", "Created pod: ", names(pods))
		assert.Equal(t, "ReplicationController", w.events(rc, "SuccessfulCreate")[0].InvolvedObject.Kind)
		w.scale(rc, 0)
		w.has(rc, 0)
		w.tells(rc, "SuccessfulDelete", "replication-controller", "Deleted pod: ", names(pods))
	})

	t.Run("A1 C1 V3 a ReplicaSet of the same name and labels is not in the way", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rc, rs := w.createController(replicationController("web", 3)), w.create(replicaSet("web", 4))
		w.has(rc, 3)
		w.has(rs, 4)
		w.scale(rc, 1)
		w.has(rc, 1)
		w.settle(rc)
		w.settle(rs)
		assert.Equal(t, 3, w.history.everOwned(rc))
		assert.Equal(t, 4, w.history.everOwned(rs))
		assert.Empty(t, w.wire.of(http.MethodPatch, "pods"))
	})

	t.Run("C3 C5 V17 orphaned pods go to one of its name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := w.createController(replicationController("web", 3))
		pods := w.has(first, 3)
		w.runAll(pods)
		w.delete(first, metav1.DeletePropagationOrphan)
		w.eventually(func(c *assert.CollectT) { assert.Zero(c, w.report(first)) }, "the first must go")
		w.cachesAreFresh()
		second := w.createController(replicationController("web", 3))
		assert.Equal(t, uids(pods), uids(w.has(second, 3)))
		assert.Equal(t, 3, w.history.everOwned(second))
	})
}
