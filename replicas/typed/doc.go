// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typed provides the client and the cache of a controller.Controller for operators that use
// client-go. NewClient returns a client that makes its calls with typed clients. NewCache returns a cache
// that reads from informers. The package does not import client-go, so it works with client-go 0.33 and all
// later releases.
//
//	client := typed.NewClient(fleet.FleetV1().WorkerPools, fleet.FleetV1().Workers)
//	cache, err := typed.NewCache(kind, pools.Informer(), workers.Informer())
//	...
//	c, err := controller.New(kind, client, cache, queue.AddAfter, controller.Options{})
//
// Your program starts the informers, and runs a work queue whose workers call c.Sync. The event handlers
// of both informers must call the methods of c, as handlers.Handlers shows. Package clientgo provides
// the work queue and the event handlers, for client-go 0.36 and later.
package typed
