// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 is the API of the operator: a WorkerPool and its Workers.
//
// +kubebuilder:object:generate=true
// +groupName=workerpool.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of all kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "workerpool.example.com", Version: "v1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &WorkerPool{}, &WorkerPoolList{}, &Worker{}, &WorkerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
