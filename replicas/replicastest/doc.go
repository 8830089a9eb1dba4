// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicastest helps you to test your own controller: the plan for a few children, or the whole controller on a
// simulated cluster in which watches hang and responses are lost.
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
// A cluster holds one kind of owners and one kind of children: ReplicaSets and pods if NewPodCluster makes it, and
// your own types if NewCluster does. It simulates the garbage collector and an API server, with UIDs, resource
// versions, generations, finalizers, preconditions, merge patches, subresources, quotas and webhooks. For pods, it
// also simulates nodes, a scheduler and kubelets, while other children become ready through the function
// Cluster.Ready. But a cluster has no CRD schemas, so it does not default, validate or convert custom resources. To
// test this, use a real API server.
//
// The simulation is in memory, uses virtual time and starts no goroutine, so a test runs in the same way each time. Only
// the functions that build objects are safe for concurrent use.
//
// The zero values of Cluster, Client, View and Controller cannot be used. Call NewPodCluster, NewCluster, NewClient,
// NewView and NewController instead.
package replicastest
