// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/podrank"
)

// Explain returns the children in deletion order. Each entry names the criterion that ranks its child before the next
// child, and children that must stay come last. With Spec.Groups, the children of each group are ranked on their own,
// group after group. Scale.Delete contains the first children in this order, except in a rollout or while deletions are
// in flight.
//
// The parameter owned lists the owner's children, as for ScaleTo. To explain a plan, pass the children in its
// Claims.Owned and Claims.Adopt. Explain does not check whether the owner controls them, and omits those that are
// inactive or being deleted. If there are no children, the result is nil. Facts.Pending does not affect the result, and
// Spec.Replicas affects only which slots are wanted. Explain returns the errors of ScaleTo, except those about new
// children, changes, children to discard, and rollouts that can never replace a child.
func Explain[T metav1.Object](owned []T, spec Spec[T]) ([]podrank.Victim[T], error) {
	if err := spec.begin(); err != nil {
		return nil, err
	}
	active, err := spec.active(owned)
	if err != nil {
		return nil, err
	}
	if err := spec.refuseRepeated(active); err != nil {
		return nil, err
	}
	parts, err := spec.parts(active)
	if err != nil {
		return nil, err
	}
	var victims []podrank.Victim[T]
	for _, p := range spec.assign(parts, active, nil, nil) {
		if _, _, err := p.fitSlots(p.owned, p.marked, &p.wanted); err != nil {
			return nil, err
		}
		staying := p.staying(p.owned)
		victims = append(victims, podrank.Explain(staying, p.ranking(staying))...)
	}
	return victims, nil
}
