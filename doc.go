// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicakit is the map of a library for controllers that must keep N
// copies of something: the primitives of Kubernetes' ReplicaSet controller as
// small packages, and their composition.
//
// A controller of this kind goes round a loop, and each step has its package:
//
//	observe   expectations   what have I started but not yet seen?
//	claim     selector       which ones are mine?
//	plan      podrank        who goes first?
//	apply     slowstart      how fast do I dare?
//	report    status         what do I say about it?
//
// Package replicas puts them together. Its Manage takes facts and returns a
// plan, and calls nothing:
//
//	spec, err := replicas.ReplicaSetSpec(rs) // what is wanted
//	spec.Now = time.Now()
//	plan, err := replicas.Manage(pods, spec) // adopt, release, create or delete
//
// Package replicas/controller goes once round the loop, for owners and children of
// any kind and over any client, and turns watch events into owners to look at:
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	requeueAfter, err := c.Sync(ctx, key)
//
// Package replicas/typed makes the client and the cache from client-go's typed clients and
// informers, without importing it.
//
// Package replicas/ledger keeps what calls have shown of the children until the cache
// shows it: a loop of your own needs it as much.
//
// The modules replicas/clientgo and replicas/controllerruntime run all of it with
// client-go and with controller-runtime; the first also has a complete ReplicaSet
// controller and ReplicationController manager.
//
// Whatever package you use, these rules hold: time comes in as an argument or a
// field; inputs are never changed; no argument causes a panic, except a nil context and
// those of functions whose name begins with Must; nil and empty mean the same, except
// for selectors, which are refused if they are nil or empty; no package keeps state of
// its own. What Kubernetes does is followed to the letter, fact by fact, in
// docs/behaviour.md; if it is wrong, the doc comment says "Differs from Kubernetes:".
package replicakit
