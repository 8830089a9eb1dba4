// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

func describe(c *replicastest.PodCluster, controller *podController) string {
	s := replicastest.NewState(c)
	s.Add(controller)
	return s.String()
}

// A clone of a cluster and its controller behaves in the same way as the original. The steps of the clone do not
// change the original.
func TestClone(t *testing.T) {
	t.Parallel()
	cluster := replicastest.NewPodCluster(replicastest.Options{Counting: true, Nodes: 2})
	controller := cluster.NewController()
	controller.View.ChildWatch.Lag = 300 * time.Millisecond
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, controller}}
	createReplicaSet(t, cluster, 4)
	cluster.SetQuota(namespace, 3)
	for range 50 {
		clone := cluster.Clone()
		twin := controller.Clone(clone)
		before := describe(cluster, controller)
		require.Equal(t, before, describe(clone, twin))
		other := &replicastest.World{Clock: clone.Clock, Parts: []replicastest.Part{clone, twin}}
		other.Run(100 * time.Millisecond)
		require.Equal(t, before, describe(cluster, controller))
		world.Run(100 * time.Millisecond)
		require.Equal(t, describe(cluster, controller), describe(clone, twin))
	}
}

// If two clusters differ only in generated names, UIDs and resourceVersions, their States are equal.
func TestState(t *testing.T) {
	t.Parallel()
	states := map[string]bool{}
	for waste := range 3 {
		cluster := replicastest.NewPodCluster(replicastest.Options{Counting: true, Nodes: 1})
		for range waste {
			createPod(t, cluster, pod("waste"))
			remove(t, cluster, "waste")
		}
		for range waste { // perform the cluster's pending task for each deleted pod
			cluster.Act()
		}
		controller := cluster.NewController()
		createReplicaSet(t, cluster, 2)
		(&replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{controller}}).Run(0)
		states[describe(cluster, controller)] = true
	}
	assert.Len(t, states, 1)
}
