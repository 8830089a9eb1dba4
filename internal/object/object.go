// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package object has functions for any Kubernetes object that several packages need.
package object

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IsNil reports whether an interface, such as an object, is nil or holds a nil pointer.
func IsNil(obj any) bool {
	if obj == nil {
		return true
	}
	v := reflect.ValueOf(obj)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// NilOf returns IsNil for the elements of a list. For lists of pointers it uses no reflection.
func NilOf[T metav1.Object]() func(T) bool {
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return func(obj T) bool { return IsNil(obj) }
	}
	var null T
	return func(obj T) bool { return any(obj) == any(null) }
}

// IndexNil returns the index of the first element of a list that is nil, or -1.
func IndexNil[T metav1.Object](objs []T) int {
	if pods, ok := any(objs).([]*corev1.Pod); ok { // the usual case: without a call for each
		return slices.Index(pods, nil)
	}
	var null T
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return slices.IndexFunc(objs, func(obj T) bool { return IsNil(obj) })
	}
	return slices.IndexFunc(objs, func(obj T) bool { return any(obj) == any(null) })
}

// Name returns the object's "namespace/name", or its bare name if it has no namespace. Errors, logs and
// work queues use this form.
func Name(obj metav1.Object) string {
	if namespace := obj.GetNamespace(); namespace != "" {
		return namespace + "/" + obj.GetName()
	}
	return obj.GetName()
}

// ID returns the key of an object in expectations. That is its UID, or its Name if it has no UID, as with a
// fake client.
func ID(obj metav1.Object) types.UID {
	if uid := obj.GetUID(); uid != "" {
		return uid
	}
	return types.UID(Name(obj))
}

// Same reports whether two entries of a list are the same object, by UID.
// Objects without UID are never the same.
func Same(a, b metav1.Object) bool {
	return a.GetUID() != "" && a.GetUID() == b.GetUID()
}
