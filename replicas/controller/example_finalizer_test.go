// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

const podsFinalizer = "example.com/pods"

// withFinalizer returns a Kind that deletes the pods of a deleted owner one at a time, the highest ordinal first,
// and then lets the owner go. The function release removes podsFinalizer from the owner.
func withFinalizer(release func(ctx context.Context, rs *appsv1.ReplicaSet) error) controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		s, err := spec(rs)
		s.Slots, s.Finalizer, s.BurstReplicas = replicas.Ordinals(rs.Name), podsFinalizer, 1
		return s, err
	}
	kind.Prepare = func(ctx context.Context, rs *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		if rs.DeletionTimestamp == nil || !slices.Contains(rs.Finalizers, podsFinalizer) || !step.NoneLeft() {
			return nil
		}
		return release(ctx, rs)
	}
	return kind
}

// withoutFinalizer removes podsFinalizer. The finalizers of others stay.
func withoutFinalizer(rs *appsv1.ReplicaSet) {
	rs.Finalizers = slices.DeleteFunc(rs.Finalizers, func(f string) bool { return f == podsFinalizer })
}

// A finalizer keeps an owner that is being deleted until its last pod is gone. Each pass deletes at most one pod,
// and the pod with the highest ordinal is deleted first. When no pod is left, Prepare removes the finalizer.
func ExampleKind_finalizer() {
	var cluster *replicastest.PodCluster
	kind := withFinalizer(func(ctx context.Context, rs *appsv1.ReplicaSet) error {
		_, err := cluster.EditOwner(ctx, rs.Namespace, rs.Name, withoutFinalizer)
		return err
	})
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Changed = func(before, after metav1.Object) {
		if pod, ok := before.(*corev1.Pod); ok && after == nil {
			fmt.Println(pod.Name, "is gone")
		}
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	rs := replicastest.NewReplicaSet("default", "db", 3)
	rs.Finalizers = []string{podsFinalizer}
	if _, err := cluster.CreateOwner(ctx, rs); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	if err := cluster.DeleteOwner(ctx, "default", "db", metav1.DeletePropagationBackground); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(10 * time.Minute)
	fmt.Println(len(cluster.Children("default")), "pods,", len(cluster.Owners("default")), "owners")
	// Output:
	// db-2 is gone
	// db-1 is gone
	// db-0 is gone
	// 0 pods, 0 owners
}
