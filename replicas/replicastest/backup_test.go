// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podstate "github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

func TestRestore(t *testing.T) {
	t.Parallel()
	c := newCluster(1)
	createReplicaSet(t, c, 1)
	createPod(t, c, pod("ready"))
	run(c, 5*time.Second)
	createPod(t, c, pod("new"))
	createPod(t, c, pod("leaving"))
	run(c, time.Second)
	_, err := c.DeleteChild(t.Context(), namespace, "leaving", metav1.DeleteOptions{})
	require.NoError(t, err)
	_, err = c.EditChild(t.Context(), namespace, "ready", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64) })
	require.NoError(t, err)
	view := c.NewView()
	for view.ChildWatch.Pending() > 0 {
		view.ChildWatch.Deliver()
	}

	backup, version := c.Backup(), c.Version()
	_, err = c.DeleteChild(t.Context(), namespace, "ready", metav1.DeleteOptions{})
	require.NoError(t, err)
	_, err = c.DeleteChild(t.Context(), namespace, "new", *metav1.NewDeleteOptions(0))
	require.NoError(t, err)
	createPod(t, c, pod("later"))
	_, err = c.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 7 })
	require.NoError(t, err)
	run(c, time.Second)
	for range 2 { // a backup can be restored more than once
		backup()
		assert.Equal(t, version, c.Version(), "versions go back")
		assert.True(t, view.ChildWatch.Broken(), "watches break")
		assert.Equal(t, []string{"leaving", "new", "ready"}, names(c))
		assert.EqualValues(t, 1, *c.Owners(namespace)[0].Spec.Replicas)
		run(c, time.Minute)
	}
	assert.Equal(t, []string{"new", "ready"}, names(c), "the kubelet ends what was being deleted")
	for _, p := range c.Children(namespace) {
		assert.True(t, podstate.IsReady(p), "the kubelet starts %s", p.Name)
		assert.Equal(t, p.Generation, p.Status.ObservedGeneration, p.Name)
	}
	createPod(t, c, pod("another"))
	assert.Greater(t, c.Version(), version)
}

func names(c *replicastest.PodCluster) (names []string) {
	for _, p := range c.Children(namespace) {
		names = append(names, p.Name)
	}
	return names
}
