// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"

	"k8s.io/apimachinery/pkg/labels"
)

// CheckSelector returns an error if a selector is nil, matches nothing or matches everything. With such a
// selector, an owner would release all objects or adopt all objects.
func CheckSelector(sel labels.Selector) error {
	if IsNil(sel) {
		return errors.New("selector is nil")
	}
	if _, selectable := sel.Requirements(); !selectable { // for example, a selector made from a nil *metav1.LabelSelector
		return errors.New("selector matches nothing")
	}
	if sel.Empty() {
		return errors.New("selector is empty")
	}
	return nil
}
