// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

// Objects returns a new slice with the objects of the victims, in the same order. If there are no
// victims, the result is nil.
func Objects[T any](victims []Victim[T]) []T {
	var objs []T
	for _, v := range victims {
		objs = append(objs, v.Object)
	}
	return objs
}
