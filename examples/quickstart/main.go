// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command quickstart keeps a fleet of pods alive on a simulated cluster, in virtual time, and prints its
// actions and the reasons.
//
//	go run ./examples/quickstart
//
// This file is a whole ReplicaSet controller, and newKeeper connects its parts. Only the cluster, its
// watches and the work queue are simulated. A real controller has a client, informers and a rate-limited
// queue instead. The events are in story.go, and the output in print.go.
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

// A keeper keeps the ReplicaSets of a cluster at their wanted number of pods.
type keeper struct {
	view       *replicastest.View[*appsv1.ReplicaSet, *corev1.Pod] // the state that the watches have shown so far, as two informers have it
	queue      *replicastest.Worker                                // a work queue that never runs one owner twice at once
	controller *controller.Controller
}

// newKeeper connects the parts. kind has all the differences between kinds of owners. For ReplicaSets it is
// ready to use.
func newKeeper(cluster *replicastest.PodCluster, client *replicastest.Client[*appsv1.ReplicaSet, *corev1.Pod], kind controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]) (*keeper, error) {
	view := cluster.NewView()
	queue := &replicastest.Worker{Clock: cluster.Clock}

	// The client makes the calls, the view answers from memory, and the queue accepts requests for passes.
	c, err := controller.New(kind, client, view, queue.Wake, controller.Options{
		Now:         cluster.Clock.Now,
		Random:      cluster.Random,
		Events:      client,
		MaxParallel: 1, // the simulation has no goroutines; leave it 0 on a real cluster
	})
	if err != nil {
		return nil, err
	}

	view.Handle(c)      // the watches call ChildAdded, OwnerUpdated and the like
	queue.Sync = c.Sync // and the worker makes the passes
	return &keeper{view, queue, c}, nil
}
