// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllerruntime runs a controller.Kind with controller-runtime 0.21 or later:
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{
//		Scheme:         scheme,
//		LeaderElection: true, LeaderElectionID: "pools.example.com", LeaderElectionNamespace: "default",
//	})
//	...
//	err = controllerruntime.Add(mgr, kind, controllerruntime.Options{})
//	...
//	err = mgr.Start(ctx)
//
// The manager holds the connections and the caches, elects the leader, and serves the metrics. The comment of
// Add has the rights that the operator needs, and that of Reconciler says what a pass reads where.
package controllerruntime
