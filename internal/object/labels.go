// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"

	"k8s.io/apimachinery/pkg/labels"
)

// Labels is a list of labels. A list is faster than a map if the same labels are compared with many objects,
// because ranging over a map is slow.
type Labels []Label

// A Label is a key and its value.
type Label struct{ Key, Value string }

// ListLabels returns the labels of a map as a list, in any order.
func ListLabels(set map[string]string) Labels {
	list := make(Labels, 0, len(set))
	for key, value := range set {
		list = append(list, Label{key, value})
	}
	return list
}

// In reports whether the given map contains every label of the list.
func (l Labels) In(set map[string]string) bool {
	for _, want := range l {
		if value, ok := set[want.Key]; !ok || value != want.Value {
			return false
		}
	}
	return true
}

// InEach sets in[i] to the result of In for sets[i]. It compares one label with all maps before the next label. So the
// processor can wait for the memory of several maps at once, and with 10,000 objects that is where most of the time goes.
func (l Labels) InEach(sets []map[string]string, in []bool) {
	for i, set := range sets {
		in[i] = len(l) == 0 || len(set) > 0
	}
	for _, want := range l {
		for i, set := range sets {
			if in[i] {
				value, ok := set[want.Key]
				in[i] = ok && value == want.Value
			}
		}
	}
}

// CheckSelector returns an error if a selector is nil, matches nothing or matches everything. With such a
// selector, an owner would release all objects or adopt all objects.
func CheckSelector(sel labels.Selector) error {
	if IsNil(sel) {
		return errors.New("selector is nil")
	}
	if sel.Empty() {
		return errors.New("selector is empty")
	}
	if _, ok := sel.(labels.ValidatedSetSelector); ok { // it would have to build its requirements
		return nil
	}
	if _, selectable := sel.Requirements(); !selectable { // for example, a selector made from a nil *metav1.LabelSelector
		return errors.New("selector matches nothing")
	}
	return nil
}
