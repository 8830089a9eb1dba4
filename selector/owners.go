// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
)

// Owners returns the owners that would adopt an orphan, in the order of the input. When an orphan
// appears, a controller must sync these owners. If there are several of these owners, their
// selectors overlap. The owner that adopts first wins, and you may want to report the overlap.
//
// The function sel returns the selector of an owner, as ForReplicaSet and ForReplicationController
// do. If sel is nil, Owners returns nil. If child is nil, has no labels or already has a
// controller, Owners also returns nil. An owner is left out if it is nil or in another namespace
// than child. An owner is also left out if sel returns an error, or a selector that is nil, is
// empty or can match nothing. An owner that is being deleted is not left out.
func Owners[O metav1.Object](child metav1.Object, owners []O, sel func(O) (labels.Selector, error)) []O {
	if sel == nil || object.IsNil(child) || len(child.GetLabels()) == 0 || metav1.GetControllerOfNoCopy(child) != nil {
		return nil
	}
	var found []O
	isNil := object.NilOf[O]()
	for _, owner := range owners {
		if isNil(owner) {
			continue
		}
		if o := object.OwnerOf(owner, schema.GroupKind{}); !o.Reaches(child) {
			continue
		}
		s, err := sel(owner)
		if err != nil || object.CheckSelector(s) != nil {
			continue
		}
		if s.Matches(labels.Set(child.GetLabels())) {
			found = append(found, owner)
		}
	}
	return found
}
