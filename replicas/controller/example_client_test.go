// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// A serving client makes a Service of the same name before it makes a pod. It embeds the client that makes all other
// calls.
type serving struct {
	controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
	createService func(ctx context.Context, service *corev1.Service) error
}

func (c serving) Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	// The owner of the pod is the owner of the Service, and so the garbage collector deletes both with it.
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, OwnerReferences: pod.OwnerReferences}}
	if err := c.createService(ctx, service); err != nil && !apierrors.IsAlreadyExists(err) { // an earlier creation of the pod may have failed
		return nil, fmt.Errorf("creating the service %s: %w", service.Name, err)
	}
	return c.Client.Create(ctx, pod)
}

// Each pod of this Kind is created with a Service. In this example, the server is too busy for the second Service. The
// pod is not created without it, and a second later both are. A pod of a Spec with Slots that is replaced finds the
// Service of its predecessor.
func ExampleKind_client() {
	services, busy := map[string]bool{}, true
	createService := func(_ context.Context, service *corev1.Service) error { // stands for the API call
		switch {
		case services[service.Name]:
			return apierrors.NewAlreadyExists(corev1.Resource("services"), service.Name)
		case service.Name == "db-1" && busy:
			busy = false
			return apierrors.NewTooManyRequests("slow down", 1)
		}
		services[service.Name] = true
		fmt.Println("service", service.Name)
		return nil
	}
	kind := controller.ReplicaSets()
	kind.Client = func(client controller.Client[*appsv1.ReplicaSet, *corev1.Pod]) controller.Client[*appsv1.ReplicaSet, *corev1.Pod] {
		return serving{client, createService}
	}
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := replicas.ReplicaSetSpec(rs)
		s.Slots = replicas.Ordinals(rs.Name)
		return s, err
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Changed = func(before, after metav1.Object) {
		if pod, ok := after.(*corev1.Pod); ok && before == nil {
			fmt.Println("pod", pod.Name)
		}
	}
	ctx := context.Background()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	if _, err := cluster.CreateOwner(ctx, replicastest.NewReplicaSet("default", "db", 2)); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	if _, err := cluster.DeleteChild(ctx, "default", "db-0", metav1.DeleteOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	world.Run(time.Minute)
	// Output:
	// service db-0
	// pod db-0
	// service db-1
	// pod db-1
	// pod db-0
}

// An updating client has the right to update a status, but not to patch it. It reads the owner, sets the new
// status and calls updateStatus. The argument of PatchStatus comes from the cache and may lack annotations, so the
// client must not send it.
type updating struct {
	controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
	updateStatus func(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error)
}

func (c updating) PatchStatus(ctx context.Context, rs *appsv1.ReplicaSet, _ selector.Patch) (*appsv1.ReplicaSet, error) {
	fresh, err := c.GetOwner(ctx, rs.Namespace, rs.Name)
	if err != nil {
		return nil, err
	}
	// If the owner has changed on the server, the update fails with a Conflict, as a patch would.
	fresh.Status, fresh.ResourceVersion = rs.Status, rs.ResourceVersion
	return c.updateStatus(ctx, fresh)
}

// A reading client is a stub that takes the place of your own client. This example needs only the method GetOwner.
type reading struct {
	controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
	stored *appsv1.ReplicaSet
}

func (c reading) GetOwner(context.Context, string, string) (*appsv1.ReplicaSet, error) {
	return c.stored.DeepCopy(), nil
}

func Example_statusByUpdate() {
	stored := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"deployment.kubernetes.io/revision": "3"}}}
	client := updating{
		Client: reading{stored: stored},
		updateStatus: func(_ context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
			fmt.Println("update", rs.Annotations, rs.Status.Replicas, "replicas")
			return rs, nil
		},
	}
	cached := stored.DeepCopy()
	cached.Annotations = nil // a transform of the cache dropped them
	cached.Status.Replicas = 3
	if _, err := client.PatchStatus(context.Background(), cached, selector.Patch{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// update map[deployment.kubernetes.io/revision:3] 3 replicas
}
