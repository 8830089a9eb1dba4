// Package clientgo runs ReplicaSets and ReplicationControllers with client-go:
// informers feed a replicas.Router, a rate-limited work queue feeds a
// replicas.Reconciler, and the status follows each pass.
//
//	factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
//	controller, err := clientgo.NewReplicaSetController(ctx,
//		factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 0)
//	factory.Start(ctx.Done())
//	controller.Run(ctx, clientgo.DefaultWorkers)
//
// Left to the caller: the client with its rate limits, user agent and
// CapRetryAfter, starting the informers, leader election, and serving the
// metrics. Only one process may run a controller for the same objects.
//
// Names, log lines, index names and metrics are those of
// pkg/controller/replicaset and pkg/controller/replication, so that dashboards
// and other controllers on the same informers go on as they are.
//
// Differs from Kubernetes: ReplicationControllers are not converted to
// ReplicaSets, and their pods are ranked by co-location too; a sync that finds
// the cache behind its own writes comes back soon without an error; Retry-After
// takes the place of the rate limiter; workers wait until the events of the
// initial lists have been handled, not only stored; a panic costs one sync, not
// the process; owners whose calls hang do not keep the others waiting; failures to
// add handlers, indexes or metrics are returned.
package clientgo
