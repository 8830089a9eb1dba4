// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/podrank"
)

// Explain returns the order in which all children would be deleted. Each entry says what decides
// between this child and the next. Scale.Delete is the beginning of this order. Children that must
// stay come last.
//
// owned are the children that ScaleTo takes. For a plan, they are its Claims.Owned and
// Claims.Adopt. Children that are inactive or being deleted are left out. Explain does not check
// who owns the others. Spec.Pending does not change the result, and Spec.Replicas changes only
// which of Spec.Slots are wanted. Errors are those of ScaleTo, except those about creations. If
// there are no children, the result is nil.
func Explain[T metav1.Object](owned []T, spec Spec[T]) ([]podrank.Victim[T], error) {
	if err := spec.begin(); err != nil {
		return nil, err
	}
	active, err := spec.active(owned)
	if err != nil {
		return nil, err
	}
	if err := spec.once(active); err != nil {
		return nil, err
	}
	wanted, err := spec.wanted(active)
	if err != nil {
		return nil, err
	}
	if err := spec.fitSlots(active, wanted); err != nil {
		return nil, err
	}
	staying := spec.staying(active)
	return podrank.Explain(staying, spec.ranking(staying)), nil
}
