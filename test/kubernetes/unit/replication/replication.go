// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replication replaces k8s.io/kubernetes/pkg/controller/replication. The unit tests of the replaced
// package run in this package.
package replication

import (
	corev1 "k8s.io/api/core/v1"

	ours "github.com/replicakit/replicakit/status"
)

// GetCondition calls GetCondition of our package status.
func GetCondition(status corev1.ReplicationControllerStatus, conditionType corev1.ReplicationControllerConditionType) *corev1.ReplicationControllerCondition {
	return ours.GetCondition(status.Conditions, conditionType)
}

// SetCondition calls SetCondition of our package status.
func SetCondition(status *corev1.ReplicationControllerStatus, condition corev1.ReplicationControllerCondition) {
	ours.SetCondition(&status.Conditions, condition)
}

// RemoveCondition calls RemoveCondition of our package status.
func RemoveCondition(status *corev1.ReplicationControllerStatus, conditionType corev1.ReplicationControllerConditionType) {
	ours.RemoveCondition(&status.Conditions, conditionType)
}
