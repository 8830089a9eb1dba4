// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command quickstart keeps a fleet of pods alive on a simulated cluster, in virtual time. The command prints
// each action with its reason.
//
//	go run ./examples/quickstart
//
// This file contains a complete ReplicaSet controller. The function newKeeper connects the parts of the
// controller. Only the cluster, its watches and the work queue are simulated. A real controller has a
// client, informers and a rate-limited queue instead. The simulated events are in story.go, and the output
// functions are in print.go.
package main

import (
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

func main() {
	text, err := tell()
	fmt.Print(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// A keeper makes sure that each ReplicaSet of a cluster has the wanted number of pods.
type keeper struct {
	view       *replicastest.View[*appsv1.ReplicaSet, *corev1.Pod] // a cache that the watches update, in place of two informer caches
	queue      *replicastest.Worker                                // a work queue that never runs two passes for the same owner at once
	controller *controller.Controller
}

// newKeeper connects the parts of the controller. The parameter kind describes the owners and their pods.
// For ReplicaSets, pass the result of controller.ReplicaSets.
func newKeeper(cluster *replicastest.PodCluster, client *replicastest.Client[*appsv1.ReplicaSet, *corev1.Pod], kind controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]) (*keeper, error) {
	view := cluster.NewView()
	queue := &replicastest.Worker{Clock: cluster.Clock}

	// The client makes the API calls, the view is the cache, and the queue accepts requests for passes.
	c, err := controller.New(kind, client, view, queue.Wake, controller.Options{
		Now:         cluster.Clock.Now,
		Random:      cluster.Random,
		Events:      client,
		MaxParallel: 1, // the simulation has no goroutines; on a real cluster, leave MaxParallel at 0
	})
	if err != nil {
		return nil, err
	}

	view.Handle(c)      // the watches call ChildAdded, OwnerUpdated and the other handlers
	queue.Sync = c.Sync // the queue calls Sync for each owner name
	return &keeper{view, queue, c}, nil
}
