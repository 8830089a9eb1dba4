// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicastest helps you to test your own controller. You can test a plan for children that
// you build by hand, or a whole controller on a simulated cluster where watches hang and answers
// get lost.
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
// A cluster holds owners and children of one kind each. NewPodCluster makes one of ReplicaSets and
// pods, and NewCluster one of your own types. It simulates the garbage collector and an API server,
// with UIDs, resource versions, generations, finalizers, preconditions, merge patches, quotas and
// webhooks. Pods also have nodes, a scheduler and kubelets. Other children become ready as
// Cluster.Ready says. A cluster does not default, validate or convert objects as a CRD does. To
// test that, use a real API server.
//
// Everything is in memory and in virtual time, and no goroutine is started, so a test runs in the
// same way each time. Nothing here is safe for concurrent use, except the functions that build
// objects.
//
// The zero values of Cluster, Client, View and Controller are useless. Call NewPodCluster,
// NewCluster, NewClient, NewView and NewController.
package replicastest
