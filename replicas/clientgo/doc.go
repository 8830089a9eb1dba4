// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clientgo runs package controller with client-go, for owners and children of any kind. The cache
// reads informers, the client makes its calls with typed clients, and the owners to work on come from a
// rate-limited work queue.
//
//	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
//	c, err := clientgo.NewReplicaSetController(ctx,
//		factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
//	factory.Start(ctx.Done())
//	err = c.Run(ctx, clientgo.DefaultWorkers)
//
// NewReplicaSetController and NewReplicationManager return controllers for Kubernetes' own kinds. New
// returns a controller for any controller.Kind. Make the client for New with typed.NewClient, from a typed
// client for owners and one for children.
//
// The controller patches the status of owners, so its role must allow the verb patch for the owners'
// status subresource, for example replicasets/status. The roles of Kubernetes' own controllers allow only
// update. A transform function of the informers (SetTransform, or informers.WithTransform) may drop fields
// that the Kind does not read, such as annotations and managedFields.
//
// Your program makes the client, and sets its rate limits, its user agent and CapRetryAfter. Your program
// also starts the informers, elects a leader, and serves the metrics. Only one process at a time may run a
// controller for the same objects.
//
// For ReplicaSets and ReplicationControllers, this package uses the names, log lines, indexes and metrics
// of pkg/controller/replicaset and pkg/controller/replication in Kubernetes. So existing dashboards, and
// other controllers on the same informers, continue to work.
//
// Differs from Kubernetes: the differences of package controller, and the following:
//   - Log lines about ReplicationControllers say ReplicationController. When a pass ends, it logs how many
//     children it created and deleted. The event of a child is logged only if the event woke an owner.
//   - If the cache does not show the controller's own writes yet, a sync requeues the owner soon, without
//     an error.
//   - If the server sends a Retry-After, that delay replaces the rate limiter's delay.
//   - Workers start when the event handlers have seen the first lists, which is later than when the caches
//     are filled.
//   - A panic ends only the sync in which it happens, and the process continues.
//   - If the calls for a few owners hang, the other owners are not delayed.
//   - If a handler, an index or a metric cannot be added, New returns an error.
package clientgo
