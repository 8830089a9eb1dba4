// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

// Objects returns the objects of victims, in their order, in a new slice. It returns nil if there
// are none.
func Objects[T any](victims []Victim[T]) []T {
	var objs []T
	for _, v := range victims {
		objs = append(objs, v.Object)
	}
	return objs
}
