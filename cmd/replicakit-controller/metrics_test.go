// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestOwnerTotal(t *testing.T) {
	t.Parallel()
	five := int32(5)
	failing := &appsv1.ReplicaSet{
		Spec: appsv1.ReplicaSetSpec{Replicas: &five},
		Status: appsv1.ReplicaSetStatus{Replicas: 4, ReadyReplicas: 3, AvailableReplicas: 2, Conditions: []appsv1.ReplicaSetCondition{
			{Type: "Other", Status: corev1.ConditionTrue}, {Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue},
		}},
	}
	failed := &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{Conditions: []appsv1.ReplicaSetCondition{
		{Type: "Other", Status: corev1.ConditionTrue}, {Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionFalse},
	}}}
	failingRC := &corev1.ReplicationController{
		Spec: corev1.ReplicationControllerSpec{Replicas: &five},
		Status: corev1.ReplicationControllerStatus{Replicas: 40, ReadyReplicas: 30, AvailableReplicas: 20, Conditions: []corev1.ReplicationControllerCondition{
			{Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue},
		}},
	}
	for _, row := range []struct {
		name   string
		owners []any
		want   ownerTotal
	}{
		{"no owners", nil, ownerTotal{}},
		{"one that fails", []any{failing}, ownerTotal{desired: 5, current: 4, ready: 3, available: 2, failing: 1}},
		{"one that failed once, and whose spec is not filled in", []any{failed}, ownerTotal{}},
		{"several", []any{failing, failed, failing}, ownerTotal{desired: 10, current: 8, ready: 6, available: 4, failing: 2}},
		{"of the other kind", []any{failingRC}, ownerTotal{desired: 5, current: 40, ready: 30, available: 20, failing: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var total ownerTotal
			for _, owner := range row.owners {
				total.add(owner)
			}
			assert.Equal(t, row.want, total)
		})
	}
}
