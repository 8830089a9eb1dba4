// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clientgo runs a controller.Controller with client-go, for owners and children of any kind. The
// controller reads from informers, makes its API calls with typed clients, and takes the owners to process
// from a rate-limited work queue.
//
//	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
//	c, err := clientgo.NewReplicaSetController(ctx,
//		factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
//	factory.Start(ctx.Done())
//	err = c.Run(ctx, clientgo.DefaultWorkers)
//
// NewReplicaSetController and NewReplicationManager return controllers for Kubernetes' own kinds. New
// returns a controller for any controller.Kind. The function typed.NewClient makes the client that New
// requires, from the typed clients for owners and for children.
//
// The controller patches the status of owners, so its role must allow the verb patch for their status
// subresource, for example replicasets/status; the roles of Kubernetes' own controllers allow only update. A
// transform function of the informers (SetTransform, or informers.WithTransform) may drop fields that the Kind
// does not read, such as annotations and managedFields.
//
// Your program makes the client, sets the rate limits and the user agent, adds CapRetryAfter, starts the
// informers, elects a leader, and serves the metrics. Only one process at a time may run a controller for the
// same objects.
//
// For ReplicaSets and ReplicationControllers, this package uses the names, log lines, indexes and metrics of
// pkg/controller/replicaset and pkg/controller/replication in Kubernetes, so existing dashboards continue to
// work, and so do other controllers that share the informers.
//
// Differs from Kubernetes, in addition to what package controller lists:
//   - Log lines about ReplicationControllers contain the kind ReplicationController. At the end of a pass,
//     the numbers of created and deleted children are logged. An event of a child is logged only if the
//     event has queued an owner.
//   - A sync whose cache does not show the controller's own writes yet requeues the owner after a short delay,
//     and returns no error.
//   - A server's Retry-After replaces the rate limiter's delay.
//   - Workers start only after the event handlers have processed the initial lists, and not as soon as the
//     caches are filled.
//   - A panic ends only its sync, and the process continues.
//   - When calls for a few owners hang, the other owners are not delayed.
//   - New returns an error when a handler, an index or a metric cannot be added.
package clientgo
