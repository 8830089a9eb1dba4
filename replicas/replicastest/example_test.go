package replicastest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A ReplicaSet on two nodes, whose first create call is refused.
func Example() {
	cluster := replicastest.NewCluster(replicastest.Options{Nodes: 2, Seed: 1})
	controller := replicastest.NewController(cluster)
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, controller}}
	start := cluster.Clock.Now()

	calls := 0
	controller.Client.Fault = func(replicastest.Call) replicastest.Fault {
		calls++
		if calls == 1 {
			return replicastest.Fault{Before: errors.New("the server is down")}
		}
		return replicastest.Fault{}
	}
	controller.Passed = func(pass replicastest.Pass) {
		if len(pass.Created) > 0 || pass.Err != nil {
			fmt.Printf("%v: created %d, %d failed\n", cluster.Clock.Now().Sub(start), len(pass.Created), pass.Failed)
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
	// 5ms: created 3, 0 failed
	// web-5f9sh node-2 Running
	// web-gm6nj node-1 Running
	// web-zbxs4 node-1 Running
}
