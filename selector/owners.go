// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
)

// Owners returns the owners that would adopt the given orphan, in the order of the input. When an
// orphan appears, a controller must sync these owners. If the result contains several owners, their
// selectors overlap, and the first owner that adopts the orphan keeps it. You may want to report
// the overlap to the user.
//
// The function sel returns the selector of an owner. ForReplicaSet and ForReplicationController are
// examples. If sel is nil, Owners returns nil. If the child is nil, has no labels or already has a
// controller, Owners also returns nil. The result omits owners that are nil or in a namespace other
// than the child's. It also omits an owner if sel returns an error, or if its selector is nil, is
// empty or cannot match any object. The result may contain owners that are being deleted.
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
