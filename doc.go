// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicakit gives an overview of a library for controllers that keep N copies of
// something. The library splits the logic of Kubernetes' ReplicaSet controller into small packages. Package
// replicas combines these packages.
//
// A controller that keeps N copies runs a loop, and each step of the loop has its own package:
//
//	observe   expectations   what have I started but not yet seen?
//	claim     selector       which ones are mine?
//	plan      podrank        who goes first?
//	apply     slowstart      how fast do I dare?
//	report    status         what do I say about it?
//
// The function replicas.Manage computes a plan from the observed children and a spec, and makes no
// API calls:
//
//	spec, err := replicas.ReplicaSetSpec(rs) // what is wanted
//	spec.Facts.Now = time.Now()
//	plan, err := replicas.Manage(pods, spec) // adopt, release, create or delete
//
// Package replicas/controller runs one pass of the loop, for owners and children of any kind, and
// with any client. For each watch event, package replicas/handlers finds the owners that must be synced:
//
//	c, err := controller.New(controller.ReplicaSets(), client, cache, queue.AddAfter, controller.Options{})
//	requeueAfter, err := c.Sync(ctx, key)
//
// Package replicas/typed turns client-go's typed clients and informers into the client and the cache that
// package replicas/controller needs. The package does not import client-go.
//
// After an API call on a child, package replicas/ledger remembers the result until the cache shows it. Use
// package replicas/ledger if you write your own loop.
//
// Package replicas/faults tests any operator on a real API server. It spoils the operator's calls and watches,
// and judges whether the number of children stays right.
//
// The module replicas/clientgo runs the whole loop with client-go, and the module replicas/controllerruntime
// runs it with controller-runtime. The module replicas/clientgo also contains a complete ReplicaSet
// controller and a complete ReplicationController manager.
//
// These rules hold in every package:
//
//   - Functions take the time from an argument or a field.
//   - Functions never change their inputs.
//   - No argument causes a panic. The only exceptions are a nil context, and functions whose names
//     begin with Must.
//   - Nil and empty slices and maps mean the same. Selectors are an exception, because a nil or empty
//     selector is refused.
//   - No package has global state.
//
// Except where a doc comment says "Differs from Kubernetes:", the library behaves exactly as
// Kubernetes does. The page docs/behaviour.md lists each rule.
package replicakit
