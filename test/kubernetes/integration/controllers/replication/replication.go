// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replication is what Kubernetes' integration tests get where they import
// k8s.io/kubernetes/pkg/controller/replication: the controller of replicas/clientgo.
package replication

import (
	"context"
	"fmt"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
)

// BurstReplicas is how many pods a pass creates or deletes at most.
const BurstReplicas = replicas.DefaultBurstReplicas

// A ReplicationManager is our controller.
type ReplicationManager = clientgo.Controller

// NewReplicationManager returns our controller.
func NewReplicationManager(ctx context.Context, podInformer coreinformers.PodInformer, rcInformer coreinformers.ReplicationControllerInformer, client kubernetes.Interface, burstReplicas int) *ReplicationManager {
	controller, err := clientgo.NewReplicationManager(ctx, podInformer, rcInformer, client, burstReplicas)
	if err != nil {
		panic(fmt.Sprintf("replication: %v", err)) // the tests expect no error
	}
	return controller
}
