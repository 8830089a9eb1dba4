// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OldRevision puts objects first whose revision is not the current one. The revision of an object
// is the value of its label with the given key. If there is no such label, the revision is the
// value of the annotation with this key. An object with neither has an old revision. If key or
// current is empty, NewOrder returns an error.
func OldRevision[T metav1.Object](key, current string) Criterion[T] {
	revision := func(obj T) string {
		if value, ok := obj.GetLabels()[key]; ok {
			return value
		}
		return obj.GetAnnotations()[key]
	}
	isCurrent := func(obj T) int64 {
		if revision(obj) == current {
			return 1
		}
		return 0
	}
	c := number("old-revision", "revision "+victimHere+", not "+survivorHere, isCurrent,
		func(obj T) string { return cmp.Or(revision(obj), "none") })
	switch {
	case key == "":
		c.err = errors.New("key is empty")
	case current == "":
		c.err = errors.New("current revision is empty")
	}
	return c
}
