// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/distinct"
	"github.com/replicakit/replicakit/internal/object"
)

// withoutNil returns the children that are not nil. If no child is nil, it returns the same slice.
func withoutNil[T metav1.Object](children []T) []T {
	if object.IndexNil(children) < 0 {
		return children
	}
	return slices.DeleteFunc(slices.Clone(children), object.NilOf[T]())
}

// repeated finds the objects that have the UID of an earlier object, and returns their indices.
// Objects without a UID, such as those of fake clients, all count as different.
func repeated[T metav1.Object](objs []T) []int {
	if pods, ok := any(objs).([]*corev1.Pod); ok { // pods are the usual case, and reading their fields is faster than calling methods
		return repeatedBy(pods, func(p *corev1.Pod) string { return string(p.UID) })
	}
	return repeatedBy(objs, func(obj T) string { return string(obj.GetUID()) })
}

func repeatedBy[T any](objs []T, uidOf func(T) string) (again []int) {
	seen := distinct.New(len(objs), func(i int) string { return uidOf(objs[i]) })
	var uids [32]string // a small chunk, so that the processor can load several UIDs in parallel
	at := 0
	for some := range slices.Chunk(objs, len(uids)) {
		for i, obj := range some {
			uids[i] = uidOf(obj)
		}
		for _, uid := range uids[:len(some)] {
			if uid != "" && seen.Add(at, uid) != at {
				again = append(again, at)
			}
			at++
		}
	}
	return again
}
