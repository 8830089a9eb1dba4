// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package object

// Labels is a set of labels as a list. Looking for them in many objects is faster than with a map, because
// it is slow to range over a map for each object.
type Labels []Label

// A Label is a key and its value.
type Label struct{ Key, Value string }

// ListLabels returns a set of labels as a list, in any order.
func ListLabels(set map[string]string) Labels {
	list := make(Labels, 0, len(set))
	for key, value := range set {
		list = append(list, Label{key, value})
	}
	return list
}

// In reports whether every label of the list is in the set.
func (l Labels) In(set map[string]string) bool {
	for _, want := range l {
		if value, ok := set[want.Key]; !ok || value != want.Value {
			return false
		}
	}
	return true
}
