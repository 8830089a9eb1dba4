// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"

	"k8s.io/apimachinery/pkg/labels"
)

// CheckSelector refuses selectors that no owner can mean, because they would release everything or adopt
// everything.
func CheckSelector(sel labels.Selector) error {
	if IsNil(sel) {
		return errors.New("selector is nil")
	}
	if _, selectable := sel.Requirements(); !selectable { // as after the conversion of a nil *metav1.LabelSelector
		return errors.New("selector matches nothing")
	}
	if sel.Empty() {
		return errors.New("selector is empty")
	}
	return nil
}
