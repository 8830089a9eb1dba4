// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	podstate "github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

func createPods(t *testing.T, c *replicastest.PodCluster, n int) {
	t.Helper()
	for i := range n {
		createPod(t, c, pod(fmt.Sprintf("web-%d", i)))
	}
}

// nodes returns, for each node, the number of pods for which the given function returns true.
func nodes(c *replicastest.PodCluster, is func(*corev1.Pod) bool) map[string]int {
	count := map[string]int{}
	for _, p := range c.Children(namespace) {
		if is(p) {
			count[p.Spec.NodeName]++
		}
	}
	return count
}

func TestPodsStart(t *testing.T) {
	t.Parallel()
	c := newCluster(2)
	createPods(t, c, 4)
	pending := func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodPending }

	run(c, 500*time.Millisecond-1)
	assert.Equal(t, map[string]int{"": 4}, nodes(c, pending))
	run(c, 1)
	assert.Equal(t, map[string]int{"node-1": 2, "node-2": 2}, nodes(c, pending), "spread evenly")
	run(c, 2*time.Second-1)
	assert.Empty(t, nodes(c, podstate.IsReady))
	run(c, 1)
	assert.Equal(t, map[string]int{"node-1": 2, "node-2": 2}, nodes(c, podstate.IsReady))
}

func TestPodsWaitForANode(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	createPods(t, c, 1)
	run(c, time.Hour)
	assert.Equal(t, map[string]int{"": 1}, nodes(c, podstate.IsActive))
	c.AddNode("node-1")
	run(c, 3*time.Second)
	assert.Equal(t, map[string]int{"node-1": 1}, nodes(c, podstate.IsReady))
}

func TestLostNode(t *testing.T) {
	t.Parallel()
	c := newCluster(2)
	createPods(t, c, 4)
	run(c, 10*time.Second)
	c.LoseNode("node-2")

	run(c, 50*time.Second-1)
	assert.Equal(t, map[string]int{"node-1": 2, "node-2": 2}, nodes(c, podstate.IsReady), "nobody knows yet")
	run(c, 1)
	assert.Equal(t, map[string]int{"node-1": 2}, nodes(c, podstate.IsReady))
	assert.Equal(t, map[string]int{"node-1": 2, "node-2": 2}, nodes(c, podstate.IsActive))
	createPod(t, c, pod("late"))
	run(c, 10*time.Second)
	assert.Equal(t, 3, nodes(c, podstate.IsReady)["node-1"], "nothing new goes there")

	run(c, 5*time.Minute)
	terminating := func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }
	assert.Equal(t, map[string]int{"node-2": 2}, nodes(c, terminating))
	run(c, time.Hour)
	assert.Equal(t, map[string]int{"node-2": 2}, nodes(c, terminating), "nobody confirms that they have stopped")

	c.RemoveNode("node-2")
	run(c, 40*time.Second)
	assert.Empty(t, nodes(c, terminating))
}

func TestRemovedNode(t *testing.T) {
	t.Parallel()
	c := newCluster(1)
	held := pod("held")
	held.Finalizers = []string{"example.com/hold"}
	createPod(t, c, held)
	createPods(t, c, 2)
	run(c, 10*time.Second)
	c.RemoveNode("node-1")
	run(c, 40*time.Second)
	left := c.Children(namespace)
	require.Len(t, left, 1, "those without finalizers are gone")
	assert.Equal(t, corev1.PodFailed, left[0].Status.Phase)
}

func TestTiming(t *testing.T) {
	t.Parallel()
	c := replicastest.NewPodCluster(replicastest.Options{Nodes: 1, Timing: replicastest.Timing{Schedule: time.Minute, StartUp: time.Hour}})
	createPods(t, c, 1)
	run(c, time.Hour)
	assert.Empty(t, nodes(c, podstate.IsReady))
	run(c, time.Minute)
	assert.Equal(t, map[string]int{"node-1": 1}, nodes(c, podstate.IsReady))
}
