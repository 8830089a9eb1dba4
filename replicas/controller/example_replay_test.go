// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A pass that deleted a pod is recorded, written down, and played again later, without a
// server: it makes the same calls.
func ExampleReplay() {
	cluster := replicastest.NewPodCluster(replicastest.Options{})
	var written []byte // as a program keeps it
	c, err := cluster.NewControllerWith(controller.Options{Record: func(is controller.Recording) {
		if is.Changes() {
			written, _ = json.Marshal(is)
		}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	world := replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	ctx := context.Background()
	web, err := cluster.CreateOwner(ctx, replicastest.NewReplicaSet("shop", "web", 2))
	if err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	_, err = cluster.EditOwner(ctx, web.Namespace, web.Name, func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas = 1 })
	if err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)

	var is controller.Recording
	if err := json.Unmarshal(written, &is); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(is.Desired, "wanted,", len(is.Believed), "believed")
	calls, err := controller.Replay(ctx, controller.ReplicaSets(), is)
	for _, call := range calls {
		fmt.Println(call.Verb)
	}
	fmt.Println(err)
	// Output:
	// 1 wanted, 2 believed
	// GetOwner
	// Delete
	// UpdateStatus
	// <nil>
}
