// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset replaces k8s.io/kubernetes/pkg/controller/replicaset in Kubernetes' integration tests.
// The package contains the controller of replicas/clientgo.
package replicaset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/features"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// BurstReplicas is the maximum number of pods that one pass creates or deletes.
const BurstReplicas = replicas.DefaultBurstReplicas

// A ReplicaSetController is our controller for ReplicaSets. Kubernetes' controller reads feature gates in
// each pass, and the tests switch gates while the controller runs. In our controller, the gates are options.
// Therefore a ReplicaSetController starts a new controller whenever a gate changes. In production, a
// controller manager would be restarted with different flags.
type ReplicaSetController struct {
	make func(gates) *clientgo.Controller
	// first holds the controller that is created before the informers start.
	first *clientgo.Controller
	with  gates
}

// gates holds the feature gates that the tests switch.
type gates struct{ terminatingReplicas, podDeletionCost bool }

func currentGates() gates {
	return gates{
		terminatingReplicas: utilfeature.DefaultFeatureGate.Enabled(features.DeploymentReplicaSetTerminatingReplicas),
		podDeletionCost:     utilfeature.DefaultFeatureGate.Enabled(features.PodDeletionCost),
	}
}

// kind returns our controller.Kind for ReplicaSets. The gates determine the deletion order and the status.
func (g gates) kind() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	if !g.podDeletionCost {
		kind.Spec = specWithoutCost
	}
	if !g.terminatingReplicas {
		kind.Status = statusWithoutTerminating
	}
	return kind
}

func specWithoutCost(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
	spec, err := replicas.ReplicaSetSpec(rs)
	spec.Rules.Order = podrank.Must(podrank.Kubernetes().Without(podrank.DeletionCost().Name()))
	return spec, err
}

func statusWithoutTerminating(rs *appsv1.ReplicaSet, outcome controller.Outcome[*corev1.Pod]) error {
	err := controller.ReplicaSets().Status(rs, outcome)
	rs.Status.TerminatingReplicas = nil
	return err
}

// NewReplicaSetController returns our controller for ReplicaSets.
func NewReplicaSetController(ctx context.Context, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, client kubernetes.Interface, burstReplicas int) *ReplicaSetController {
	c := &ReplicaSetController{with: currentGates()}
	c.make = func(with gates) *clientgo.Controller {
		made, err := clientgo.New(ctx, with.kind(), typed.NewClient(client.AppsV1().ReplicaSets, client.CoreV1().Pods),
			rsInformer.Informer(), podInformer.Informer(), clientgo.Options{BurstReplicas: burstReplicas, EventClient: client.CoreV1()})
		if err != nil {
			panic(fmt.Sprintf("replicaset: %v", err)) // Kubernetes' function returns no error
		}
		return made
	}
	c.first = c.make(c.with)
	return c
}

// Run runs the controller until ctx ends.
func (c *ReplicaSetController) Run(ctx context.Context, workers int) {
	c.runUntilSwitched(ctx, c.first, workers)
	for ctx.Err() == nil { // no new controller after ctx has ended, because stopped informers accept no handlers
		c.runUntilSwitched(ctx, c.make(c.with), workers)
	}
}

// runUntilSwitched runs the controller until ctx ends or a gate changes.
func (c *ReplicaSetController) runUntilSwitched(ctx context.Context, controller *clientgo.Controller, workers int) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = controller.Run(ctx, workers)
	}()
	for ticker := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil && currentGates() == c.with; {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	stop()
	<-ended
	c.with = currentGates()
}
