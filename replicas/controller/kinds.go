// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// ReplicaSets returns the Kind of ReplicaSets. You may change it: set BeforeScale
// and Observe, or wrap Spec to set a burst or an order.
func ReplicaSets() Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	return Kind[*appsv1.ReplicaSet, *corev1.Pod]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec:  replicas.ReplicaSetSpec,
		Status: func(rs *appsv1.ReplicaSet, o Outcome[*corev1.Pod]) error {
			s := &rs.Status
			s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = o.Counts.Replicas, o.Counts.FullyLabeled, o.Counts.Ready, o.Counts.Available
			*replicaset.Terminating(s), s.ObservedGeneration = &o.Counts.Terminating, o.Generation
			status.SetFailure(&s.Conditions, o.Failure())
			return nil
		},
		StatusOf: func(rs *appsv1.ReplicaSet) any { return &rs.Status },
	}
}

// ReplicationControllers returns the Kind of ReplicationControllers, as ReplicaSets
// does for ReplicaSets. Their status has no terminatingReplicas.
func ReplicationControllers() Kind[*corev1.ReplicationController, *corev1.Pod] {
	return Kind[*corev1.ReplicationController, *corev1.Pod]{
		Owner: corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec:  replicas.ReplicationControllerSpec,
		Status: func(rc *corev1.ReplicationController, o Outcome[*corev1.Pod]) error {
			s := &rc.Status
			s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = o.Counts.Replicas, o.Counts.FullyLabeled, o.Counts.Ready, o.Counts.Available
			s.ObservedGeneration = o.Generation
			status.SetFailure(&s.Conditions, o.Failure())
			return nil
		},
		StatusOf: func(rc *corev1.ReplicationController) any { return &rc.Status },
	}
}
