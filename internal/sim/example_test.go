package sim_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/replicakit/replicakit/internal/sim"
	"github.com/replicakit/replicakit/replicas"
)

// A ReplicaSet on two nodes, whose first create call is refused.
func Example() {
	cluster := sim.NewCluster(sim.Options{Nodes: 2, Seed: 1})
	controller := sim.NewController(cluster)
	world := &sim.World{Clock: cluster.Clock, Parts: []sim.Part{cluster, controller}}
	start := cluster.Clock.Now()

	calls := 0
	controller.Client.Fault = func(sim.Call) sim.Fault {
		calls++
		if calls == 1 {
			return sim.Fault{Before: errors.New("the server is down")}
		}
		return sim.Fault{}
	}
	controller.Passed = func(_ *appsv1.ReplicaSet, result replicas.Result, err error) {
		if len(result.Created) > 0 || err != nil {
			fmt.Printf("%v: created %d, %d failed\n", cluster.Clock.Now().Sub(start), len(result.Created), result.Failed)
		}
	}
	if _, err := cluster.CreateReplicaSet(context.Background(), replicaSet("web", 3)); err != nil {
		fmt.Println(err)
	}
	world.Run(10 * time.Second)
	for _, p := range cluster.Pods("default") {
		fmt.Println(p.Name, p.Spec.NodeName, p.Status.Phase)
	}
	// Output:
	// 0s: created 0, 1 failed
	// 0s: created 3, 0 failed
	// web-4q5f9 node-1 Running
	// web-frd9g node-2 Running
	// web-zbxs4 node-1 Running
}
