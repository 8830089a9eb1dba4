// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// NewReplicaSetController returns a Controller for all ReplicaSets in the store of rsInformer. It adds event
// handlers and indexes to both informers, which may be shared and may already be running. One pass creates or
// deletes at most burstReplicas pods, where 0 means replicas.DefaultBurstReplicas, and a negative number is an
// error. Events are recorded with kubeClient. The ctx is used only to obtain a logger.
//
// To set Options, or to change the rules of ReplicaSets, call New:
//
//	kind := controller.ReplicaSets() // change it as you like
//	client := typed.NewClient(kubeClient.AppsV1().ReplicaSets, kubeClient.CoreV1().Pods)
//	c, err := clientgo.New(ctx, kind, client, rsInformer.Informer(), podInformer.Informer(),
//		clientgo.Options{EventClient: kubeClient.CoreV1()})
//
// Differs from Kubernetes: an informer that has been stopped is an error, because it takes no handlers and indexes.
func NewReplicaSetController(ctx context.Context, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, kubeClient kubernetes.Interface, burstReplicas int) (*Controller, error) {
	if err := checkParts(rsInformer, podInformer, kubeClient); err != nil {
		return nil, err
	}
	return New(ctx, controller.ReplicaSets(), typed.NewClient(kubeClient.AppsV1().ReplicaSets, kubeClient.CoreV1().Pods),
		rsInformer.Informer(), podInformer.Informer(),
		Options{BurstReplicas: burstReplicas, EventClient: kubeClient.CoreV1()})
}

func describeReplicaSetStatus(was, is *appsv1.ReplicaSet) string {
	a, b := &was.Status, &is.Status
	return fmt.Sprintf("Updating status for ReplicaSet: %s/%s, replicas %d->%d (need %s), fullyLabeledReplicas %d->%d, readyReplicas %d->%d, availableReplicas %d->%d, terminatingReplicas %s->%s, sequence No: %d->%d",
		is.Namespace, is.Name, a.Replicas, b.Replicas, orNil(is.Spec.Replicas), a.FullyLabeledReplicas, b.FullyLabeledReplicas,
		a.ReadyReplicas, b.ReadyReplicas, a.AvailableReplicas, b.AvailableReplicas,
		orNil(a.TerminatingReplicas), orNil(b.TerminatingReplicas), a.ObservedGeneration, b.ObservedGeneration)
}

func orNil(n *int32) string {
	if n == nil {
		return "nil"
	}
	return strconv.Itoa(int(*n))
}
