// Package replicaset is what Kubernetes' integration tests get where they import
// k8s.io/kubernetes/pkg/controller/replicaset: the controller of replicas/clientgo.
package replicaset

import (
	"context"
	"fmt"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/features"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
)

// BurstReplicas is how many pods a pass creates or deletes at most.
const BurstReplicas = replicas.DefaultBurstReplicas

// A ReplicaSetController is ours. Kubernetes reads feature gates in each pass, and
// the tests switch them in the middle; in ours they are options. So this one starts
// anew whenever a gate has changed, as a manager does with other flags.
type ReplicaSetController struct {
	make func(gates) *clientgo.Controller
	// first is made early: the informers start after that.
	first *clientgo.Controller
	with  gates
}

// gates are those that the tests switch.
type gates struct{ terminatingReplicas, podDeletionCost bool }

func currentGates() gates {
	return gates{
		terminatingReplicas: utilfeature.DefaultFeatureGate.Enabled(features.DeploymentReplicaSetTerminatingReplicas),
		podDeletionCost:     utilfeature.DefaultFeatureGate.Enabled(features.PodDeletionCost),
	}
}

// options are what the gates are in ours.
func (g gates) options() clientgo.Options {
	opts := clientgo.Options{OmitTerminatingReplicas: !g.terminatingReplicas}
	if !g.podDeletionCost {
		opts.Order = podrank.Must(podrank.Kubernetes().Without(podrank.DeletionCost().Name()))
	}
	return opts
}

// NewReplicaSetController makes our controller.
func NewReplicaSetController(ctx context.Context, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, client kubernetes.Interface, burstReplicas int) *ReplicaSetController {
	c := &ReplicaSetController{with: currentGates()}
	c.make = func(with gates) *clientgo.Controller {
		controller, err := clientgo.NewReplicaSetControllerWithOptions(ctx, rsInformer, podInformer, client, burstReplicas, with.options())
		if err != nil {
			panic(fmt.Sprintf("replicaset: %v", err)) // the tests expect no error
		}
		return controller
	}
	c.first = c.make(c.with)
	return c
}

// Run works until ctx ends.
func (c *ReplicaSetController) Run(ctx context.Context, workers int) {
	c.runUntilSwitched(ctx, c.first, workers)
	for ctx.Err() == nil { // informers that have stopped take no handlers
		c.runUntilSwitched(ctx, c.make(c.with), workers)
	}
}

// runUntilSwitched works until ctx ends or a gate changes.
func (c *ReplicaSetController) runUntilSwitched(ctx context.Context, controller *clientgo.Controller, workers int) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		controller.Run(ctx, workers)
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
