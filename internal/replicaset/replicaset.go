// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset gives access to fields of ReplicaSets that k8s.io/api v0.32 does not contain. The other
// packages use package replicaset, so they can be built with k8s.io/api v0.32.
package replicaset

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
)

// Terminating returns a pointer to the field terminatingReplicas of a status. If k8s.io/api does not have
// this field, Terminating returns a pointer to a new variable with the value nil. The new variable is not
// part of the status, so a write through the pointer does not change the status.
func Terminating(s *appsv1.ReplicaSetStatus) **int32 {
	if field := reflect.ValueOf(s).Elem().FieldByName("TerminatingReplicas"); field.IsValid() {
		return field.Addr().Interface().(**int32) //nolint:forcetypeassert // the field has always had this type
	}
	return new(*int32)
}
