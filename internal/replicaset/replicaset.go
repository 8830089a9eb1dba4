// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset reads fields of ReplicaSets that k8s.io/api has only since 0.33, so that the other
// packages build with 0.32.
package replicaset

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
)

// Terminating returns a pointer to terminatingReplicas of a status. If the status has no such field, it
// returns a pointer to a new nil, and writes to it are lost.
func Terminating(s *appsv1.ReplicaSetStatus) **int32 {
	if field := reflect.ValueOf(s).Elem().FieldByName("TerminatingReplicas"); field.IsValid() {
		return field.Addr().Interface().(**int32) //nolint:forcetypeassert // the field has had this type since there is one
	}
	return new(*int32)
}
