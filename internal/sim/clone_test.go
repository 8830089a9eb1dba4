package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/internal/sim"
)

func describe(c *sim.Cluster, controller *sim.Controller) string {
	s := sim.NewState(c)
	s.Add(controller)
	return s.String()
}

// A clone goes the same way as what it was cloned from, and neither minds the
// other.
func TestClone(t *testing.T) {
	t.Parallel()
	cluster := sim.NewCluster(sim.Options{Counting: true, Nodes: 2})
	controller := sim.NewController(cluster)
	controller.View.Pods.Lag = 300 * time.Millisecond
	world := &sim.World{Clock: cluster.Clock, Parts: []sim.Part{cluster, controller}}
	createReplicaSet(t, cluster, 4)
	cluster.SetQuota(namespace, 3)
	for range 200 {
		clone := cluster.Clone()
		twin := controller.Clone(clone)
		before := describe(cluster, controller)
		require.Equal(t, before, describe(clone, twin))
		other := &sim.World{Clock: clone.Clock, Parts: []sim.Part{clone, twin}}
		other.Run(100 * time.Millisecond)
		require.Equal(t, before, describe(cluster, controller))
		world.Run(100 * time.Millisecond)
		require.Equal(t, describe(cluster, controller), describe(clone, twin))
	}
}

// What differs in nothing but names and numbers reads alike.
func TestState(t *testing.T) {
	t.Parallel()
	states := map[string]bool{}
	for waste := range 3 {
		cluster := sim.NewCluster(sim.Options{Counting: true, Nodes: 1})
		for range waste {
			createPod(t, cluster, pod("waste"))
			remove(t, cluster, "waste")
		}
		for range waste { // what was to be done about it is done
			cluster.Act()
		}
		controller := sim.NewController(cluster)
		createReplicaSet(t, cluster, 2)
		(&sim.World{Clock: cluster.Clock, Parts: []sim.Part{controller}}).Run(0)
		states[describe(cluster, controller)] = true
	}
	assert.Len(t, states, 1)
}
