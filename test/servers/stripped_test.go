// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package servers_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
)

// The cache drops a label and an annotation of an owner to save memory. A thousand writes of the owner's status
// must not remove this label and annotation from the server. The server stores labels and annotations that come
// with a status. The namespace also has ten older owners without annotations.
func TestAThousandStatusesOfAStrippedOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, clientgoOf(informers.WithTransform(func(obj any) (any, error) {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			delete(rs.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
			delete(rs.Labels, "team")
		}
		return obj, nil
	})))
	plain := map[string]string{"app": "plain"}
	for range 10 {
		none := int32(0)
		_, err := w.client.AppsV1().ReplicaSets(w.namespace).Create(t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "plain-"},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: &none,
				Selector: &metav1.LabelSelector{MatchLabels: plain},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: plain}, Spec: podSpec},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.start()
	w.create(1)
	w.has(1)
	w.patch(`{"metadata":{"labels":{"team":"a","tier":"%s"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","note":"n"}}}`, "b")
	pods, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	var rs *appsv1.ReplicaSet
	for i := range 1000 {
		ready := map[bool]string{true: "True", false: "False"}[i%2 == 0]
		status := []byte(`{"status":{"conditions":[{"type":"Ready","status":"` + ready + `"}]}}`)
		_, err := w.client.CoreV1().Pods(w.namespace).Patch(t.Context(), pods.Items[0].Name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			rs, err = w.client.AppsV1().ReplicaSets(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
			return err == nil && rs.Status.ReadyReplicas == int32(1-i%2)
		}, patience, glance/10, "status %d", i)
	}
	assert.Equal(t, map[string]string{"team": "a", "tier": "b"}, rs.Labels)
	assert.Equal(t, "{}", rs.Annotations["kubectl.kubernetes.io/last-applied-configuration"])
	assert.Equal(t, "n", rs.Annotations["note"])
}
