// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/status"
)

func TestSetCondition(t *testing.T) {
	t.Parallel()
	type list = []appsv1.ReplicaSetCondition
	create, remove := fresh("FailedCreate"), fresh("FailedDelete")
	otherMessage := failure("FailedCreate", corev1.ConditionTrue)
	otherStatus := failure("FailedCreate", corev1.ConditionFalse)
	for name, tt := range map[string]struct{ old, want list }{
		"T17 the first condition":                            {nil, list{create}},
		"T17 another type stays":                             {list{custom}, list{custom, create}},
		"T17 the same status and reason change nothing":      {list{otherMessage, custom}, list{otherMessage, custom}},
		"T17 another reason replaces, at the end":            {list{remove, custom}, list{custom, create}},
		"T17 another status replaces, at the end":            {list{otherStatus, custom}, list{custom, create}},
		"T17 all conditions of the type are replaced":        {list{remove, custom, otherMessage}, list{custom, create}},
		"T17 the first of the type decides about a change":   {list{otherMessage, remove}, list{otherMessage, remove}},
		"T17 an empty list is as good as a nil one to begin": {list{}, list{create}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := appsv1.ReplicaSetStatus{Conditions: tt.old}
			status.SetCondition(&s.Conditions, create)
			assert.Equal(t, tt.want, s.Conditions)
		})
		t.Run("A8 "+name, func(t *testing.T) {
			t.Parallel()
			s := corev1.ReplicationControllerStatus{Conditions: controllerConditions(tt.old)}
			status.SetCondition(&s.Conditions, controllerConditions(list{create})[0])
			assert.Equal(t, controllerConditions(tt.want), s.Conditions)
		})
	}
	t.Run("T17 the old slice is not written to", func(t *testing.T) {
		t.Parallel()
		spare := make(list, 2, 4)
		spare[0], spare[1] = remove, custom
		s := appsv1.ReplicaSetStatus{Conditions: spare}
		status.SetCondition(&s.Conditions, create)
		status.SetCondition(&s.Conditions, appsv1.ReplicaSetCondition{Type: "example.com/Other"})
		assert.Equal(t, list{remove, custom, {}, {}}, spare[:4])
	})
	t.Run("A8 the old slice is not written to", func(t *testing.T) {
		t.Parallel()
		spare := make([]corev1.ReplicationControllerCondition, 1, 4)
		s := corev1.ReplicationControllerStatus{Conditions: spare}
		status.SetCondition(&s.Conditions, corev1.ReplicationControllerCondition{Type: "example.com/Other"})
		assert.Equal(t, make([]corev1.ReplicationControllerCondition, 4), spare[:4])
	})
	t.Run("T17 a nil pointer is left alone", func(t *testing.T) {
		t.Parallel()
		status.SetCondition(nil, create)
		status.SetFailure[metav1.Condition](nil, status.Failure{Err: io.EOF})
	})
}

func TestRemoveCondition(t *testing.T) {
	t.Parallel()
	type list = []appsv1.ReplicaSetCondition
	old := failure("FailedCreate", corev1.ConditionTrue)
	for name, tt := range map[string]struct{ old, want list }{
		"T14 the condition goes, others stay":     {list{old, custom}, list{custom}},
		"T14 every one of the type goes":          {list{old, custom, old}, list{custom}},
		"T14 nil remains when it was the last":    {list{old}, nil},
		"T14 nil remains of nil":                  {nil, nil},
		"T14 nil remains of an empty list":        {list{}, nil},
		"T14 without such a condition, all stay":  {list{custom}, list{custom}},
		"T14 the status of the condition is none": {list{failure("", corev1.ConditionFalse)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := appsv1.ReplicaSetStatus{Conditions: tt.old}
			status.RemoveCondition(&s.Conditions, appsv1.ReplicaSetReplicaFailure)
			assert.Equal(t, tt.want, s.Conditions)
		})
		t.Run("A8 "+name, func(t *testing.T) {
			t.Parallel()
			s := corev1.ReplicationControllerStatus{Conditions: controllerConditions(tt.old)}
			status.RemoveCondition(&s.Conditions, corev1.ReplicationControllerReplicaFailure)
			assert.Equal(t, controllerConditions(tt.want), s.Conditions)
		})
	}
	t.Run("T14 the old slice is not written to", func(t *testing.T) {
		t.Parallel()
		held := list{old, custom}
		s := appsv1.ReplicaSetStatus{Conditions: held}
		status.RemoveCondition(&s.Conditions, appsv1.ReplicaSetReplicaFailure)
		assert.Equal(t, list{old, custom}, held)
	})
	t.Run("T14 a nil pointer is left alone", func(t *testing.T) {
		t.Parallel()
		status.RemoveCondition[appsv1.ReplicaSetCondition](nil, appsv1.ReplicaSetReplicaFailure)
		status.RemoveCondition[corev1.ReplicationControllerCondition](nil, corev1.ReplicationControllerReplicaFailure)
	})
}

func TestGetCondition(t *testing.T) {
	t.Parallel()
	first, second := failure("first", corev1.ConditionTrue), failure("second", corev1.ConditionTrue)
	s := appsv1.ReplicaSetStatus{Conditions: []appsv1.ReplicaSetCondition{custom, first, second}}
	rc := corev1.ReplicationControllerStatus{Conditions: controllerConditions(s.Conditions)}
	t.Run("T18 the first of the type, as a copy", func(t *testing.T) {
		t.Parallel()
		got := status.GetCondition(s.Conditions, appsv1.ReplicaSetReplicaFailure)
		require.NotNil(t, got)
		assert.Equal(t, first, *got)
		assert.NotSame(t, &s.Conditions[1], got)
	})
	t.Run("T18 nil where there is none", func(t *testing.T) {
		t.Parallel()
		assert.Nil(t, status.GetCondition(s.Conditions, "Missing"))
		assert.Nil(t, status.GetCondition([]appsv1.ReplicaSetCondition(nil), appsv1.ReplicaSetReplicaFailure))
	})
	t.Run("A8 T18 the first of the type, as a copy", func(t *testing.T) {
		t.Parallel()
		got := status.GetCondition(rc.Conditions, corev1.ReplicationControllerReplicaFailure)
		require.NotNil(t, got)
		assert.Equal(t, rc.Conditions[1], *got)
		assert.NotSame(t, &rc.Conditions[1], got)
	})
	t.Run("A8 T18 nil where there is none", func(t *testing.T) {
		t.Parallel()
		assert.Nil(t, status.GetCondition(rc.Conditions, "Missing"))
	})
}
