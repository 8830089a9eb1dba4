// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// NewReplicationManager returns a Controller for all ReplicationControllers in the store of rcInformer; see
// NewReplicaSetController. The Controller does not share its work queue, its expectations or its record of
// writes with other Controllers.
//
// Differs from Kubernetes: objects are not converted to ReplicaSets and back. Pods are ranked by
// co-location with the pods of sibling ReplicationControllers, whereas Kubernetes never finds these
// siblings. The Controller remembers its own writes, as a Controller of ReplicaSets does.
func NewReplicationManager(ctx context.Context, podInformer coreinformers.PodInformer, rcInformer coreinformers.ReplicationControllerInformer, kubeClient kubernetes.Interface, burstReplicas int) (*Controller, error) {
	if err := checkParts(rcInformer, podInformer, kubeClient); err != nil {
		return nil, err
	}
	return New(ctx, controller.ReplicationControllers(), typed.NewClient(kubeClient.CoreV1().ReplicationControllers, kubeClient.CoreV1().Pods),
		rcInformer.Informer(), podInformer.Informer(),
		Options{BurstReplicas: burstReplicas, EventClient: kubeClient.CoreV1()})
}

func describeReplicationControllerStatus(was, is *corev1.ReplicationController) string {
	a, b := &was.Status, &is.Status
	return fmt.Sprintf("Updating status for ReplicationController: %s/%s, replicas %d->%d (need %s), fullyLabeledReplicas %d->%d, readyReplicas %d->%d, availableReplicas %d->%d, sequence No: %d->%d",
		is.Namespace, is.Name, a.Replicas, b.Replicas, orNil(is.Spec.Replicas), a.FullyLabeledReplicas, b.FullyLabeledReplicas,
		a.ReadyReplicas, b.ReadyReplicas, a.AvailableReplicas, b.AvailableReplicas, a.ObservedGeneration, b.ObservedGeneration)
}
