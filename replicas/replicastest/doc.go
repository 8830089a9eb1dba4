// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicastest helps you to test your own controller. You can test the plan for a few
// children, or a whole controller on a simulated cluster. In this cluster, watches can hang and
// responses can be lost.
//
// This table shows where to start:
//
//	a plan for some pods                      NewReplicaSet, NewPod, Unready, WithCost, Orphan; then replicas.Manage
//	your Kind, hours in milliseconds          NewCluster(kind), NewController, World.Run
//	calls that fail, are lost, are late       Controller.Client: Fail, and Record for the calls that were made
//	watches that lag, hang, break             Controller.View: ChildWatch and OwnerWatch; Lag, Hang, Break
//	a restart, two leaders, a wrong clock     another NewController on the same cluster; Controller.Skew
//	users, quotas, webhooks                   Cluster: EditOwner, EditChild, SetQuota, Webhook
//	a controller without replicas/controller  Controller.Sync, or NewClient and NewView alone
//
// A cluster holds one kind of owners and one kind of children. NewPodCluster makes a cluster of
// ReplicaSets and pods, and NewCluster makes a cluster of your own types. A cluster simulates the
// garbage collector and an API server, with UIDs, resource versions, generations, finalizers,
// preconditions, merge patches, subresources, quotas and webhooks. For pods, a cluster also
// simulates nodes, a scheduler and kubelets. For other children, the function Cluster.Ready makes a
// child ready. Unlike a real API server, a cluster has no CRD schemas, so it does not default,
// validate or convert custom resources. To test defaults, validation or conversion, use a real API
// server.
//
// The simulation is in memory, uses virtual time and starts no goroutine, so a test runs in the
// same way each time. Only the functions that build objects are safe for concurrent use.
//
// The zero values of Cluster, Client, View and Controller cannot be used. Call NewPodCluster,
// NewCluster, NewClient, NewView and NewController instead.
package replicastest
