// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typed makes what a controller.Controller needs from what an operator on
// client-go has already. NewClient makes the calls by typed clients, and NewCache reads
// informers. It imports no client-go, so it works with any release of it from 0.33 on.
//
//	client := typed.NewClient(fleet.FleetV1().WorkerPools, fleet.FleetV1().Workers)
//	cache, err := typed.NewCache(kind, pools.Informer(), workers.Informer())
//	...
//	c, err := controller.New(kind, client, cache, queue.AddAfter, controller.Options{})
//
// Left to the caller: the event handlers of both informers, which call the methods of
// c, as controller.Handlers shows; the work queue, whose workers call c.Sync; and starting
// the informers. Package clientgo does all of this, for client-go 0.36 and later.
package typed
