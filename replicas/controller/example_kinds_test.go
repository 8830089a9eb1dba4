// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// twoAtATime returns a Kind whose passes create at most two pods.
func twoAtATime() controller.Kind[*corev1.ReplicationController, *corev1.Pod] {
	kind := controller.ReplicationControllers()
	spec := kind.Spec
	kind.Spec = func(rc *corev1.ReplicationController) (replicas.SpecOfPods, error) {
		s, err := spec(rc)
		s.BurstReplicas = 2
		return s, err
	}
	return kind
}

// wantsThree returns a ReplicationController.
func wantsThree() *corev1.ReplicationController {
	three := int32(3)
	app := map[string]string{"app": "web"}
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &three,
			Selector: app,
			Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}},
		},
	}
}

// You can change a Kind before you use it. In this example, each pass creates at most two pods, and Observe prints
// how many pods a pass has created. The cluster is simulated.
func ExampleReplicationControllers() {
	kind := twoAtATime()
	kind.Observe = func(_ context.Context, pass controller.Pass[*corev1.ReplicationController, *corev1.Pod]) {
		if n := len(pass.Created); n > 0 {
			fmt.Println("created", n)
		}
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}

	if _, err := cluster.CreateOwner(context.Background(), wantsThree()); err != nil {
		fmt.Println(err)
		return
	}
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	world.Run(time.Minute)
	fmt.Println(cluster.Owners("default")[0].Status.ReadyReplicas, "are ready")
	// Output:
	// created 2
	// created 1
	// 3 are ready
}
