// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Named returns a filter that is true for objects with one of these names, in any
// namespace. Without names it is true for no object.
func Named[T metav1.Object](names ...string) func(T) bool {
	set := sets.New(names...)
	return func(obj T) bool { return set.Has(obj.GetName()) }
}

// All is a filter that is true for every object. As Claimer.Filter without a Selector, it takes
// every object of the list. As Claimer.Keep, it means that no object is released.
func All[T metav1.Object](T) bool { return true }

// None is a filter that is true for no object. As Claimer.Filter it releases all
// objects that the owner has, and adopts none.
func None[T metav1.Object](T) bool { return false }
