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
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// Prepare asks a pod to drain before the pod is deleted. The pod is deleted only after an agent has marked it as
// drained. If the pod is wanted again before that, Prepare cancels the drain. The cluster is simulated, and the
// example itself plays the agent.
func ExampleStep() {
	const drain, drained = "example.com/drain", "example.com/drained"
	var cluster *replicastest.PodCluster
	annotate := func(ctx context.Context, pod *corev1.Pod, key, value string) error {
		_, err := cluster.EditChild(ctx, pod.Namespace, pod.Name, func(p *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
		})
		return err
	}
	kind := controller.ReplicaSets()
	kind.Prepare = func(ctx context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		going := sets.New[string]()
		for _, d := range step.Delete {
			going.Insert(d.Object.Name)
		}
		for _, pod := range step.Active {
			isAsked := pod.Annotations[drain] == "yes"
			switch {
			case going.Has(pod.Name) && !isAsked:
				if err := annotate(ctx, pod, drain, "yes"); err != nil {
					return err
				}
			case !going.Has(pod.Name) && isAsked && step.Later == 0:
				if err := annotate(ctx, pod, drain, "no"); err != nil {
					return err
				}
			}
		}
		step.Delete = slices.DeleteFunc(step.Delete, func(d replicas.Deletion[*corev1.Pod]) bool {
			return d.Object.Annotations[drained] == ""
		})
		return nil
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	scale := func(n int32) error {
		_, err := cluster.EditOwner(ctx, "default", "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
		world.Run(10 * time.Second)
		return err
	}
	show := func() {
		asked := 0
		for _, pod := range cluster.Children("default") {
			if pod.Annotations[drain] == "yes" {
				asked++
			}
		}
		fmt.Println(len(cluster.Children("default")), "pods,", asked, "asked to drain")
	}
	if _, err := cluster.CreateOwner(ctx, replicastest.NewReplicaSet("default", "web", 0)); err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range []int32{3, 2, 3, 2} {
		if err := scale(n); err != nil {
			fmt.Println(err)
			return
		}
		show()
	}
	for _, pod := range cluster.Children("default") { // the agent marks each draining pod as drained
		if pod.Annotations[drain] == "yes" {
			if err := annotate(ctx, pod, drained, "yes"); err != nil {
				fmt.Println(err)
			}
		}
	}
	world.Run(time.Minute)
	show()
	// Output:
	// 3 pods, 0 asked to drain
	// 3 pods, 1 asked to drain
	// 3 pods, 0 asked to drain
	// 3 pods, 1 asked to drain
	// 2 pods, 0 asked to drain
}

// Each member has a volume claim. Prepare adds the claim before the member is created, and removes the claim after
// the member was deleted. If the server refuses to delete a member, its claim stays.
func ExampleResult() {
	claims := sets.New[string]()
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		s, err := spec(rs)
		s.Slots = replicas.Ordinals(rs.Name)
		return s, err
	}
	kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		claims.Insert(step.Create...)
		for _, r := range step.Results {
			if r.Deleted && r.Err == nil {
				claims.Delete(r.Name)
			}
		}
		return nil
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	if _, err := cluster.CreateOwner(ctx, replicastest.NewReplicaSet("default", "db", 3)); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	fmt.Println(sets.List(claims))
	two := int32(2)
	if _, err := cluster.EditOwner(ctx, "default", "db", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &two }); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	fmt.Println(sets.List(claims))
	// Output:
	// [db-0 db-1 db-2]
	// [db-0 db-1]
}

// A finalizer keeps an owner that is being deleted until its last pod is gone. Each pass deletes at most one pod,
// and the pod with the highest ordinal is deleted first. When no pod is left, Prepare removes the finalizer.
func ExampleKind_finalizer() {
	const finalizer = "example.com/pods"
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		s, err := spec(rs)
		s.Slots, s.Finalizer, s.BurstReplicas = replicas.Ordinals(rs.Name), finalizer, 1
		return s, err
	}
	var cluster *replicastest.PodCluster
	kind.Prepare = func(ctx context.Context, rs *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
		for _, d := range step.Delete {
			fmt.Println(d.Object.Name, "goes")
		}
		if rs.DeletionTimestamp == nil || !step.NoneLeft() {
			return nil
		}
		_, err := cluster.EditOwner(ctx, rs.Namespace, rs.Name, func(rs *appsv1.ReplicaSet) { rs.Finalizers = nil })
		return err
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	rs := replicastest.NewReplicaSet("default", "db", 3)
	rs.Finalizers = []string{finalizer}
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
	// db-2 goes
	// db-1 goes
	// db-0 goes
	// 0 pods, 0 owners
}
