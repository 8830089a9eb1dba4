// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typed makes the client and the cache of a controller.Controller for an operator on client-go.
// NewClient makes the calls with typed clients, and NewCache reads informers. The package does not import
// client-go, so it works with any release of it from 0.33 on.
//
//	client := typed.NewClient(fleet.FleetV1().WorkerPools, fleet.FleetV1().Workers)
//	cache, err := typed.NewCache(kind, pools.Informer(), workers.Informer())
//	...
//	c, err := controller.New(kind, client, cache, queue.AddAfter, controller.Options{})
//
// The caller starts the informers, and has a work queue whose workers call c.Sync. The event handlers of
// both informers must call the methods of c, as controller.Handlers shows. Package clientgo does all of
// this, for client-go 0.36 and later.
package typed
