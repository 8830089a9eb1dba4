// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// The watch of pods hangs, but returns no error. The controller waits for the events of the pods that it has
// created. If the events do not arrive in time, the controller lists the pods live and continues.
func Example() {
	cluster := replicastest.NewPodCluster(replicastest.Options{Nodes: 2})
	c := cluster.NewController()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	ctx := context.Background()

	_, _ = cluster.CreateOwner(ctx, replicastest.NewReplicaSet("default", "web", 3))
	world.Run(time.Minute)
	c.View.ChildWatch.Hang()
	for _, replicas := range []int32{5, 2} {
		_, _ = cluster.EditOwner(ctx, "default", "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &replicas })
		world.Run(time.Hour)
		fmt.Println("wanted", replicas, "there are", len(cluster.Children("default")))
	}
	// Output:
	// wanted 5 there are 5
	// wanted 2 there are 2
}

// The third creation takes effect, but its answer is lost. The controller does not create this pod again.
func ExampleClient_Fail() {
	cluster := replicastest.NewPodCluster(replicastest.Options{Nodes: 2, Counting: true})
	c := cluster.NewController()
	c.Client.Fail(replicastest.Rule{Verb: "create", Skip: 2, Times: 1, Landed: true})
	calls := c.Client.Record()

	_, _ = cluster.CreateOwner(context.Background(), replicastest.NewReplicaSet("default", "web", 3))
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	world.Run(10 * time.Minute)
	fmt.Println(len(cluster.Children("default")), "pods; failed:", calls.Failed())
	// Output:
	// 3 pods; failed: [create Pod default/web-bbbbf: Timeout: the request did not complete in time]
}

// Manage plans which pods to adopt and which pods to delete. For each deletion, the plan contains the reason.
func ExampleNewPod() {
	rs := replicastest.NewReplicaSet("default", "web", 2)
	pods := []*corev1.Pod{
		replicastest.NewPod(rs, "web-a"),
		replicastest.Unready(replicastest.NewPod(rs, "web-b")),
		replicastest.WithCost(replicastest.NewPod(rs, "web-c"), -100),
		replicastest.Orphan(replicastest.NewPod(rs, "stray")),
	}
	spec, _ := replicas.ReplicaSetSpec(rs)
	spec.Facts.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	plan, err := replicas.Manage(pods, spec)
	fmt.Println(plan, err)
	// Output:
	// adopt 1: default/stray; delete 2: default/web-b (not ready), default/web-c (deletion cost -100 < 0) <nil>
}

// Two creations take effect, but return an error. For each error of Lost, the ReplicaSet has exactly three pods
// in the end.
func ExampleLost() {
	for _, lost := range replicastest.Lost() {
		cluster := replicastest.NewPodCluster(replicastest.Options{Nodes: 1})
		c := cluster.NewController()
		c.Client.Fail(replicastest.Rule{Verb: "create", Times: 2, Err: lost, Landed: true})
		_, _ = cluster.CreateOwner(context.Background(), replicastest.NewReplicaSet("default", "web", 3))
		world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
		world.Run(10 * time.Minute)
		fmt.Println(lost, len(cluster.Children("default")))
	}
	// Output:
	// Timeout: the request did not complete in time 3
	// no endpoints 3
	// Internal error occurred: etcd is gone 3
	// too many requests 3
	// Post "https://127.0.0.1/": connection reset by peer 3
}

// The process dies after the second creation. A new controller on the same cluster finds the two pods, and
// creates the missing ones.
func ExampleCrashes() {
	cluster := replicastest.NewPodCluster(replicastest.Options{Nodes: 1})
	c := cluster.NewController()
	created := 0
	c.Client.Done = func(call replicastest.Call, _ error) {
		if call.Verb == "create" {
			created++
		}
		if created == 2 {
			panic(replicastest.Crash{})
		}
	}
	_, _ = cluster.CreateOwner(context.Background(), replicastest.NewReplicaSet("default", "web", 5))
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	fmt.Println("died", replicastest.Crashes(func() { world.Run(time.Minute) }), len(cluster.Children("default")))

	world.Parts = []replicastest.Part{cluster, cluster.NewController()}
	world.Run(time.Minute)
	fmt.Println("then there are", len(cluster.Children("default")))
	// Output:
	// died true 2
	// then there are 5
}

// A Clock can also be used without a cluster, for any code with a replaceable clock. In this example, an
// expectation expires after five minutes.
func ExampleClock() {
	clock := &replicastest.Clock{}
	store := expectations.Store[string]{Now: clock.Now}
	store.Set("default/web", expectations.Changes{Creations: 1})
	for range 2 {
		state, _ := store.State("default/web")
		fmt.Println(clock.Now().Format(time.TimeOnly), state)
		clock.Advance(expectations.DefaultTimeout + time.Second)
	}
	// Output:
	// 00:00:00 waiting
	// 00:05:01 expired
}
