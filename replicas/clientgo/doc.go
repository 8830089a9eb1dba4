// Package clientgo runs package controller with client-go, for any kind of owner
// and child: informers are its cache, typed clients its client, a rate-limited work
// queue feeds its Sync.
//
//	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
//	c, err := clientgo.NewReplicaSetController(ctx,
//		factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
//	factory.Start(ctx.Done())
//	c.Run(ctx, clientgo.DefaultWorkers)
//
// NewReplicaSetController and NewReplicationManager are ready made. New takes any
// controller.Kind, and NewClient makes its client of those that client-gen made for
// the two types.
//
// Left to the caller: the client with its rate limits, user agent and
// CapRetryAfter, starting the informers, leader election, and serving the
// metrics. Only one process may run a controller for the same objects.
//
// For ReplicaSets and ReplicationControllers, names, log lines, index names and
// metrics are those of pkg/controller/replicaset and pkg/controller/replication, so
// that dashboards and other controllers on the same informers go on as they are.
//
// Differs from Kubernetes: all that package controller says; log lines of
// ReplicationControllers call them so, and what a pass was to create or delete is
// logged when it ends; an event of a child is logged if it woke an owner; a sync
// that finds the cache behind its own writes comes back soon without an error;
// Retry-After takes the place of the rate limiter; workers wait until the events of
// the initial lists have been handled, not only stored; a panic costs one sync, not
// the process; owners whose calls hang do not keep the others waiting; failures to
// add handlers, indexes or metrics are returned.
package clientgo
