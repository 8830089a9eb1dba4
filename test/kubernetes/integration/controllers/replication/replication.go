// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replication replaces k8s.io/kubernetes/pkg/controller/replication in Kubernetes' integration tests.
// The package contains the controller of replicas/clientgo.
package replication

import (
	"context"
	"fmt"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
)

// BurstReplicas is the maximum number of pods that one pass creates or deletes.
const BurstReplicas = replicas.DefaultBurstReplicas

// A ReplicationManager is our controller for ReplicationControllers.
type ReplicationManager = clientgo.Controller

// NewReplicationManager returns our controller for ReplicationControllers.
func NewReplicationManager(ctx context.Context, podInformer coreinformers.PodInformer, rcInformer coreinformers.ReplicationControllerInformer, client kubernetes.Interface, burstReplicas int) *ReplicationManager {
	controller, err := clientgo.NewReplicationManager(ctx, podInformer, rcInformer, client, burstReplicas)
	if err != nil {
		panic(fmt.Sprintf("replication: %v", err)) // Kubernetes' function returns no error
	}
	return controller
}
