// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Named returns a filter that returns true for objects with one of these names, in any namespace.
// If there are no names, the filter returns false for every object.
func Named[T metav1.Object](names ...string) func(T) bool {
	set := sets.New(names...)
	return func(obj T) bool { return set.Has(obj.GetName()) }
}

// All is a filter that returns true for every object. If Claimer.Filter is All and Claimer.Selector
// is nil, every object in the list matches. If Claimer.Keep is All, no object is released.
func All[T metav1.Object](T) bool { return true }

// None is a filter that returns false for every object. If Claimer.Filter is None, the owner
// releases all of its objects and adopts no objects.
func None[T metav1.Object](T) bool { return false }
