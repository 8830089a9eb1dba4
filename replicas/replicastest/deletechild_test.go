// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

func TestADryRunDeletesNothing(t *testing.T) {
	t.Parallel()
	cluster := replicastest.NewPodCluster(replicastest.Options{})
	p, err := cluster.CreateChild(t.Context(), namespace, replicastest.NewPod(nil, "a"))
	require.NoError(t, err)
	client := cluster.NewClient()
	record := client.Record()
	err = client.Delete(t.Context(), p, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	assert.Len(t, cluster.Children(namespace), 1)
	assert.Equal(t, "delete Pod default/a (dry run)\n", record.String())
}

func TestAPodWithoutAGracePeriodHasTheUsualOne(t *testing.T) {
	t.Parallel()
	cluster := replicastest.NewPodCluster(replicastest.Options{})
	cluster.Mutate = func(p *corev1.Pod) { p.Spec = corev1.PodSpec{NodeName: "node-1"} }
	_, err := cluster.CreateChild(t.Context(), namespace, replicastest.NewPod(nil, "a"))
	require.NoError(t, err)
	_, err = cluster.DeleteChild(t.Context(), namespace, "a", metav1.DeleteOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 30, *cluster.Children(namespace)[0].DeletionGracePeriodSeconds)
}
