// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

type podController = replicastest.Controller[*appsv1.ReplicaSet, *corev1.Pod]

type podPass = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]

const namespace = "default"

func newCluster(nodes int) *replicastest.PodCluster {
	return replicastest.NewPodCluster(replicastest.Options{Nodes: nodes, Seed: 1})
}

func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
			},
		},
	}
}

func createReplicaSet(t *testing.T, c *replicastest.PodCluster, replicas int32) *appsv1.ReplicaSet {
	t.Helper()
	rs, err := c.CreateOwner(t.Context(), replicaSet("web", replicas))
	require.NoError(t, err)
	return rs
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}}}
}

func createPod(t *testing.T, c *replicastest.PodCluster, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	p, err := c.CreateChild(t.Context(), namespace, p)
	require.NoError(t, err)
	return p
}

// run runs a World that contains only the cluster.
func run(c *replicastest.PodCluster, d time.Duration) {
	(&replicastest.World{Clock: c.Clock, Parts: []replicastest.Part{c}}).Run(d)
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
