// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OldRevision puts objects of old revisions before objects of the current revision. The revision of
// an object is the value of its label with the given key. If the object does not have this label,
// the revision is the value of its annotation with this key. If an object has no such label and no
// such annotation, it counts as old. If the argument key or the argument current is empty, NewOrder
// returns an error.
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
		func(text []byte, obj T) []byte { return append(text, cmp.Or(revision(obj), "none")...) })
	switch {
	case key == "":
		c.err = errors.New("key is empty")
	case current == "":
		c.err = errors.New("current revision is empty")
	}
	return c
}
