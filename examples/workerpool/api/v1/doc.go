// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 contains the operator's API types WorkerPool and Worker.
//
// +kubebuilder:object:generate=true
// +groupName=workerpool.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "workerpool.example.com", Version: "v1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &WorkerPool{}, &WorkerPoolList{}, &Worker{}, &WorkerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
