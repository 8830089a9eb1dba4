// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller carries out what package replicas decides: it keeps the
// children of all owners of one kind, on one API server, over any client. A Kind
// says how kinds of owners differ; ReplicaSets and ReplicationControllers are ready
// made, and you can write a Kind for types of your own.
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	...
//	pods.AddEventHandler(...)         // c.ChildAdded, c.ChildUpdated, c.ChildDeleted
//	replicaSets.AddEventHandler(...)  // c.OwnerAdded, c.OwnerUpdated, c.OwnerDeleted
//	...
//	requeueAfter, err := c.Sync(ctx, key) // what a worker does with a key of the queue
//
// Left to the caller: the client, the caches with their watches, and the work queue
// with its workers. The modules replicas/clientgo and replicas/controllerruntime
// have all of these. An owner must not have two Controllers at the same time. A
// Controller works on one API server: for two clusters make two.
//
// Nothing is created or deleted on a view that is known to be old, and a lost
// answer does not lead to one child too many: see Controller.Sync.
package controller
