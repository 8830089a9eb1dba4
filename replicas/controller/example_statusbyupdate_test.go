// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
)

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
