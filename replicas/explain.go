// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/podrank"
)

// Explain returns the order in which all children would be deleted. Each entry says which criterion
// puts its child before the next one. Children that must stay come last. Scale.Delete has the first
// children in this order, except in a rollout or with deletions in flight.
//
// owned has the same children as for ScaleTo. To explain a plan, pass its Claims.Owned and
// Claims.Adopt. Children that are inactive or being deleted are left out. Explain does not check
// who owns the children. Spec.Pending does not change the result, and Spec.Replicas changes only
// which of Spec.Slots are wanted. Explain returns the errors of ScaleTo, except those about new
// children. If there are no children, the result is nil.
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
