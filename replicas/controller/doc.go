// Package controller carries out what package replicas decides: it keeps the
// children of all owners of one kind, on one API server, over any client. A Kind
// says all that differs between kinds of owners; ReplicaSets and
// ReplicationControllers are two of them.
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	...
//	pods.AddEventHandler(...)         // c.ChildAdded, c.ChildUpdated, c.ChildDeleted
//	replicaSets.AddEventHandler(...)  // c.OwnerAdded, c.OwnerUpdated, c.OwnerDeleted
//	...
//	requeueAfter, err := c.Sync(ctx, key) // what a worker does with a key of the queue
//
// The client, the caches with their watches, and the work queue with its workers
// are left to the caller; replicas/clientgo has them for client-go. No two
// Controllers may share an owner at the same time, and one serves one server: for
// two clusters make two.
//
// Nothing is created or deleted on a view that is known to be old, and no lost
// answer makes a child too many: see Controller.Sync.
package controller
