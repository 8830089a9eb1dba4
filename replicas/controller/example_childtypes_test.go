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

const keepsPods, keepsServices = "example.com/pods", "example.com/services"

// A release removes a finalizer from an owner.
type release func(ctx context.Context, rs *appsv1.ReplicaSet, finalizer string) error

// whenNoneLeft returns a Prepare that removes the finalizer from a deleted owner when it has no more children of this
// type.
func whenNoneLeft[C controller.Object](finalizer string, release release) func(context.Context, *appsv1.ReplicaSet, *controller.Step[C]) error {
	return func(ctx context.Context, rs *appsv1.ReplicaSet, step *controller.Step[C]) error {
		if rs.DeletionTimestamp == nil || !slices.Contains(rs.Finalizers, finalizer) || !step.NoneLeft() {
			return nil
		}
		return release(ctx, rs, finalizer)
	}
}

// memberPods is the Kind of the pods. Its Status is that of a ReplicaSet, with observedGeneration.
func memberPods(release release) controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := replicas.ReplicaSetSpec(rs)
		s.Slots, s.Finalizer = replicas.Ordinals(rs.Name), keepsPods
		return s, err
	}
	kind.Prepare = whenNoneLeft[*corev1.Pod](keepsPods, release)
	return kind
}

// memberServices is the Kind of the Services, one for each pod. Its Status sets one condition and nothing else.
func memberServices(release release) controller.Kind[*appsv1.ReplicaSet, *corev1.Service] {
	return controller.Kind[*appsv1.ReplicaSet, *corev1.Service]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Child: corev1.SchemeGroupVersion.WithKind("Service"),
		Spec: func(rs *appsv1.ReplicaSet) (replicas.Spec[*corev1.Service], error) {
			pods, err := replicas.ReplicaSetSpec(rs) // has the number and the selector
			return replicas.Spec[*corev1.Service]{
				Replicas: pods.Replicas, Selector: pods.Selector, Slots: replicas.Ordinals(rs.Name), Finalizer: keepsServices,
				New: func(member string) (*corev1.Service, error) {
					return &corev1.Service{
						ObjectMeta: metav1.ObjectMeta{Labels: rs.Spec.Template.Labels},
						Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"member": member}},
					}, nil
				},
			}, err
		},
		Status: func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Service]) error {
			is := appsv1.ReplicaSetCondition{Type: "Serving", Status: corev1.ConditionFalse, Message: fmt.Sprintf("%d of %d services", o.Counts.Replicas, o.Desired)}
			if o.Counts.Replicas == o.Desired {
				is.Status = corev1.ConditionTrue
			}
			rs.Status.Conditions = slices.DeleteFunc(rs.Status.Conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == is.Type })
			rs.Status.Conditions = append(rs.Status.Conditions, is)
			return nil
		},
		StatusOf: func(rs *appsv1.ReplicaSet) any { return &rs.Status },
		Prepare:  whenNoneLeft[*corev1.Service](keepsServices, release),
	}
}

// An owner with two types of children has two Kinds, and so two Controllers. Each has its own finalizer on the owner and
// its own part of the status. The first cluster has the owners, and the second one has the same.
func Example_twoChildTypes() {
	ctx := context.Background()
	var cluster *replicastest.PodCluster
	release := func(ctx context.Context, rs *appsv1.ReplicaSet, finalizer string) error {
		fmt.Println("nothing is left for", finalizer)
		_, err := cluster.EditOwner(ctx, rs.Namespace, rs.Name, func(rs *appsv1.ReplicaSet) {
			rs.Finalizers = slices.DeleteFunc(rs.Finalizers, func(f string) bool { return f == finalizer })
		})
		return err
	}
	cluster, err := replicastest.NewCluster(memberPods(release), replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	services, err := replicastest.NewClusterBeside(cluster, memberServices(release), replicastest.Options{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{
		cluster, cluster.NewController(), services, services.NewController(),
	}}

	rs := replicastest.NewReplicaSet("default", "db", 3)
	rs.Finalizers = []string{keepsPods, keepsServices}
	if _, err := cluster.CreateOwner(ctx, rs); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	status := cluster.Owners("default")[0].Status
	fmt.Println(status.ReadyReplicas, "pods ready,", status.Conditions[0].Message)

	if err := cluster.DeleteOwner(ctx, "default", "db", metav1.DeletePropagationBackground); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	fmt.Println(len(cluster.Children("default")), "pods,", len(services.Children("default")), "services,", len(cluster.Owners("default")), "owners")
	// Output:
	// 3 pods ready, 3 of 3 services
	// nothing is left for example.com/services
	// nothing is left for example.com/pods
	// 0 pods, 0 services, 0 owners
}
