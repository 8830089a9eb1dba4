// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clientgo runs package controller with client-go, for owners and children of any kind. Its cache
// is made of informers, typed clients make its calls, and a rate-limited work queue feeds Sync.
//
//	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
//	c, err := clientgo.NewReplicaSetController(ctx,
//		factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
//	factory.Start(ctx.Done())
//	err = c.Run(ctx, clientgo.DefaultWorkers)
//
// NewReplicaSetController and NewReplicationManager are ready to use. New takes any controller.Kind. Its
// client comes from typed.NewClient, which takes the typed clients of the two types.
//
// The controller patches the status of owners, so it needs the right to patch replicasets/status or the
// like. Kubernetes' own roles have only update. A transform of the informers (SetTransform, or
// informers.WithTransform) may drop fields that the Kind does not read, such as annotations and
// managedFields.
//
// You make the client, with its rate limits, its user agent and CapRetryAfter. You also start the
// informers, elect a leader, and serve the metrics. Only one process at a time may run a controller for the
// same objects.
//
// For ReplicaSets and ReplicationControllers, the names, log lines, indexes and metrics are those of
// pkg/controller/replicaset and pkg/controller/replication in Kubernetes. So your dashboards, and other
// controllers on the same informers, work as before.
//
// Differs from Kubernetes: all the differences of package controller, and also:
//   - Log lines about ReplicationControllers say ReplicationController. At its end a pass logs what it
//     created or deleted. An event of a child is logged if it woke an owner.
//   - A sync that finds the cache behind its own writes is requeued soon, without an error.
//   - A Retry-After of the server replaces the delay of the rate limiter.
//   - Workers start when the events of the first lists have been handled, not only stored.
//   - A panic ends one sync, not the process.
//   - A few owners whose calls hang do not delay the others.
//   - If a handler, an index or a metric cannot be added, New returns an error.
package clientgo
