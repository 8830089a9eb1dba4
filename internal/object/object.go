// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package object contains functions for Kubernetes objects of any kind. Several packages use these functions.
package object

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IsNil reports whether an interface value is nil or holds a nil pointer.
func IsNil(obj any) bool {
	if obj == nil {
		return true
	}
	v := reflect.ValueOf(obj)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// NilOf returns a function that does the same as IsNil, for objects of type T. If T is a pointer type, the
// function uses no reflection.
func NilOf[T metav1.Object]() func(T) bool {
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return func(obj T) bool { return IsNil(obj) }
	}
	var null T
	return func(obj T) bool { return any(obj) == any(null) }
}

// IndexNil returns the index of the first nil element of a list, or -1 if no element is nil.
func IndexNil[T metav1.Object](objs []T) int {
	if pods, ok := any(objs).([]*corev1.Pod); ok { // the usual case, which needs no method call for each object
		return slices.Index(pods, nil)
	}
	var null T
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return slices.IndexFunc(objs, func(obj T) bool { return IsNil(obj) })
	}
	return slices.IndexFunc(objs, func(obj T) bool { return any(obj) == any(null) })
}

// Name returns the object's "namespace/name", or only its name if it has no namespace. Errors, logs and work
// queues use this form.
func Name(obj metav1.Object) string {
	if namespace := obj.GetNamespace(); namespace != "" {
		return namespace + "/" + obj.GetName()
	}
	return obj.GetName()
}

// ID returns the key that identifies an object in package expectations. The key is the UID of the object. If
// the object has no UID, as with a fake client, the key is the result of Name.
func ID(obj metav1.Object) types.UID {
	if uid := obj.GetUID(); uid != "" {
		return uid
	}
	return types.UID(Name(obj))
}

// Same reports whether two entries of a list have the same UID and therefore are the same object. The result
// is false for objects without a UID.
func Same(a, b metav1.Object) bool {
	return a.GetUID() != "" && a.GetUID() == b.GetUID()
}
