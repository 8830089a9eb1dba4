// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScale(t *testing.T) {
	t.Parallel()
	t.Run("B3 K4 V2 V12 V14 V15 up, down, to zero and up again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 3))
		first := w.has(rs, 3)
		w.scale(rs, 10)
		assert.Subset(t, names(w.has(rs, 10)), names(first), "pods stay while others come")
		w.scale(rs, 4)
		w.has(rs, 4)
		w.scale(rs, 0)
		w.has(rs, 0)
		w.scale(rs, 2)
		w.has(rs, 2)

		w.settle(rs)
		assert.Equal(t, 3+7+2, w.history.everOwned(rs), "no pod was created for nothing")
		assert.Len(t, w.wire.of(http.MethodPost, "pods"), 3+7+2)
		assert.Len(t, w.wire.of(http.MethodDelete, "pods"), 6+4)
	})

	t.Run("P2 P3 P5 P6 P17 pods are made from the template", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := replicaSet("web", 1)
		rs.Spec.Template.Labels["tier"] = "front"
		rs.Spec.Template.Annotations = map[string]string{"note": "kept"}
		rs.Spec.Template.Finalizers = []string{"e2e.replicakit.dev/hold"}
		rs.Spec.Template.Name = "ignored"
		rs = w.create(rs)
		pod := w.has(rs, 1)[0]
		assert.Equal(t, rs.Spec.Template.Labels, pod.Labels)
		assert.Equal(t, rs.Spec.Template.Annotations, pod.Annotations)
		assert.Equal(t, rs.Spec.Template.Finalizers, pod.Finalizers)
		assert.Equal(t, "web-", pod.GenerateName)
		assert.Equal(t, []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}, pod.OwnerReferences)
	})

	t.Run("P6 an owner with the longest name has pods", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := replicaSet("web", 2)
		rs.Name = longestName
		w.has(w.create(rs), 2)
	})

	t.Run("Y10 the scale sub-resource tells and takes the number", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 2))
		w.has(rs, 2)
		client := w.client.AppsV1().ReplicaSets(w.namespace)
		scale, err := client.GetScale(t.Context(), rs.Name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 2, scale.Status.Replicas)
		assert.Equal(t, "app=web", scale.Status.Selector)
		scale.Spec.Replicas = 5
		w.allow(rs, 3)
		_, err = client.UpdateScale(t.Context(), rs.Name, scale, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.has(rs, 5)
	})

	t.Run("B1 B2 D6 D7 S1 S2 S8 S9 K1 beyond the burst, up in slow start and down", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 600))
		w.has(rs, 600)
		creations := w.wire.of(http.MethodPost, "pods")
		require.Len(t, creations, 600)
		assertBatches(t, creations, 1, 2, 4, 8, 16, 32, 64, 128, 245, 1, 2, 4, 8, 16, 32, 37)

		w.scale(rs, 0)
		w.has(rs, 0)
		deletions := w.wire.of(http.MethodDelete, "pods")
		require.Len(t, deletions, 600)
		assertBatches(t, deletions, 500, 100)
		assert.Equal(t, 600, w.history.everOwned(rs))
	})

	t.Run("B1 B2 a burst of three", func(t *testing.T) {
		t.Parallel()
		w := newWorldWith(t, settings{burst: 3})
		rs := w.create(replicaSet("web", 8))
		w.has(rs, 8)
		assertBatches(t, w.wire.of(http.MethodPost, "pods"), 1, 2, 1, 2, 1, 1)
		w.scale(rs, 1)
		w.has(rs, 1)
		assertBatches(t, w.wire.of(http.MethodDelete, "pods"), 3, 3, 1)
	})
}

// longestName has the maximum length of the name of a ReplicaSet.
var longestName = fmt.Sprintf("%0253d", 7)

// assertBatches asserts that the calls of each batch began only after all calls of the earlier batches had ended.
func assertBatches(t *testing.T, calls []call, sizes ...int) {
	t.Helper()
	for i, size := range sizes {
		require.GreaterOrEqual(t, len(calls), size)
		batch, later := calls[:size], calls[size:]
		last := slices.MaxFunc(batch, func(a, b call) int { return a.end - b.end })
		if len(later) > 0 {
			assert.Less(t, last.end, later[0].begin, "batch %d, of %d, must end before the next begins", i, size)
		}
		calls = later
	}
	assert.Empty(t, calls, "calls in no batch")
}

func TestVictims(t *testing.T) {
	t.Parallel()
	t.Run("R1 R2 R3 unassigned pods go first, then pending ones, then those not ready", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 4))
		pods := w.has(rs, 4)
		w.bind(pods[1], "node-1")
		w.bind(pods[2], "node-2")
		w.phase(pods[2].Name, corev1.PodRunning)
		w.run(pods[3], "node-3", time.Now())
		w.settle(rs)
		for left := 3; left > 0; left-- {
			w.scale(rs, int32(left))
			w.eventually(func(c *assert.CollectT) {
				assert.Equal(c, uids(pods[4-left:]), uids(w.active(rs)))
			}, "the last %d must stay", left)
		}
	})

	t.Run("R4 R5 deletion cost decides among ready pods", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 5))
		pods := w.has(rs, 5)
		w.runAll(pods)
		for i, cost := range []string{"10", "-2147483648", "", "-5", "7"} {
			if cost != "" {
				w.patchPod(pods[i].Name, `{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"`+cost+`"}}}`)
			}
		}
		w.settle(rs)
		w.scale(rs, 2)
		w.eventually(func(c *assert.CollectT) {
			assert.Equal(c, names([]*corev1.Pod{pods[0], pods[4]}), names(w.active(rs)))
		}, "the dear ones must stay")
	})

	t.Run("L1 L3 L5 R6 pods beside many siblings go first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		deployment := w.createDeployment("web")
		old, current := replicaSet("web-1", 3), replicaSet("web-2", 4)
		for _, rs := range []*appsv1.ReplicaSet{old, current} {
			rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		}
		old, current = w.create(old), w.create(current)
		now := time.Now()
		for i, pod := range w.has(old, 3) {
			w.run(pod, "node-"+strconv.Itoa(i/2), now) // two on node-0, one on node-1
		}
		pods := w.has(current, 4)
		for i, pod := range pods {
			w.run(pod, "node-"+strconv.Itoa(i), now)
		}
		w.settle(current)
		for _, crowded := range pods[:2] {
			w.scale(current, int32(len(w.active(current)))-1)
			w.eventually(func(c *assert.CollectT) {
				assert.NotContains(c, names(w.active(current)), crowded.Name)
			}, "the pod with most neighbours must go")
		}
		assert.Equal(t, names(pods[2:]), names(w.has(current, 2)))
		assert.Len(t, w.has(old, 3), 3, "siblings are only counted")
	})

	t.Run("L2 an owner of its own has no siblings", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rs := w.create(replicaSet("web", 3))
		pods, now := w.has(rs, 3), time.Now()
		w.run(pods[0], "node-0", now)
		w.run(pods[1], "node-1", now.Add(-24*time.Hour))
		w.run(pods[2], "node-1", now.Add(-24*time.Hour))
		w.settle(rs)
		w.scale(rs, 2)
		assert.Equal(t, names(pods[1:]), names(w.has(rs, 2)), "two on a node stay, as they have been ready longer")
	})
}

func (w *world) createDeployment(name string) *appsv1.Deployment {
	w.t.Helper()
	deployment, err := w.client.AppsV1().Deployments(w.namespace).Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels(name)},
			Template: template(labels(name)),
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return deployment
}
