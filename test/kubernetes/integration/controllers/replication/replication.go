// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replication has the controller of replicas/clientgo, in place of
// k8s.io/kubernetes/pkg/controller/replication, for Kubernetes' integration tests.
package replication

import (
	"context"
	"fmt"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
)

// BurstReplicas is the most pods that a pass creates or deletes.
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
