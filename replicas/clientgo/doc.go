// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clientgo runs package controller with client-go, for owners and children
// of any kind: informers are its cache, typed clients make its calls, and a
// rate-limited work queue feeds Sync.
//
//	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
//	c, err := clientgo.NewReplicaSetController(ctx,
//		factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
//	factory.Start(ctx.Done())
//	err = c.Run(ctx, clientgo.DefaultWorkers)
//
// NewReplicaSetController and NewReplicationManager are ready made. New takes any
// controller.Kind; typed.NewClient makes the client that it needs from the typed
// clients of the two types.
//
// The status of an owner is patched, which needs the right to patch replicasets/status and the
// like. Kubernetes' own roles have only update. A transform of the informers (SetTransform, or
// informers.WithTransform) may drop what the Kind does not look at, such as annotations and
// managedFields.
//
// Left to the caller: the client with its rate limits, its user agent and
// CapRetryAfter; starting the informers; leader election; and serving the metrics.
// Only one process at a time may run a controller for the same objects.
//
// For ReplicaSets and ReplicationControllers, the names, log lines, indexes and
// metrics are those of pkg/controller/replicaset and pkg/controller/replication in
// Kubernetes. So your dashboards, and other controllers on the same informers, work
// as before.
//
// Differs from Kubernetes: all that package controller says. Besides:
//   - Log lines about ReplicationControllers say ReplicationController. What a pass
//     created or deleted is logged at its end. An event of a child is logged if it
//     woke an owner.
//   - A sync that finds the cache behind its own writes is requeued soon, without an
//     error.
//   - A Retry-After of the server replaces the delay of the rate limiter.
//   - Workers start when the events of the first lists have been handled, not only
//     stored.
//   - A panic ends one sync, not the process.
//   - A few owners whose calls hang do not keep the others waiting.
//   - If a handler, an index or a metric cannot be added, that is an error.
package clientgo
