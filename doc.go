// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicakit is the overview of a library for controllers that must keep N copies of
// something. The library has the primitives of Kubernetes' ReplicaSet controller as small packages,
// and combines them.
//
// A controller of this kind runs a loop, and each step has its package:
//
//	observe   expectations   what have I started but not yet seen?
//	claim     selector       which ones are mine?
//	plan      podrank        who goes first?
//	apply     slowstart      how fast do I dare?
//	report    status         what do I say about it?
//
// Package replicas combines them. Its function Manage takes facts, returns a plan, and calls
// nothing:
//
//	spec, err := replicas.ReplicaSetSpec(rs) // what is wanted
//	spec.Now = time.Now()
//	plan, err := replicas.Manage(pods, spec) // adopt, release, create or delete
//
// Package replicas/controller runs the loop once, for owners and children of any kind and over any
// client. It also turns watch events into owners to sync:
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	requeueAfter, err := c.Sync(ctx, key)
//
// Package replicas/typed makes the client and the cache from client-go's typed clients and
// informers, without importing client-go.
//
// Package replicas/ledger remembers what calls have shown of the children until the cache shows it.
// A loop of your own needs it too.
//
// The modules replicas/clientgo and replicas/controllerruntime run all of this with client-go and
// with controller-runtime. The first also has a complete ReplicaSet controller and
// ReplicationController manager.
//
// These rules hold in every package:
//
//   - Time is an argument or a field.
//   - Inputs are never changed.
//   - No argument causes a panic, except a nil context and the arguments of functions whose name
//     begins with Must.
//   - Nil and empty mean the same, except for selectors. A nil or empty selector is refused.
//   - No package keeps state of its own.
//
// The library does exactly what Kubernetes does, and docs/behaviour.md lists each fact. If
// Kubernetes is wrong, the doc comment says "Differs from Kubernetes:".
package replicakit
