// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selector decides which objects an owner has, which orphans it adopts and which objects it
// releases, and makes these claims.
//
//	claimed, err := selector.Claimer[*corev1.Pod]{
//		Owner:    rs,
//		Kind:     appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
//		Selector: sel,                              // ForReplicaSet(rs) makes it
//		CanAdopt: selector.CanAdopt(readLive, rs),  // asked before the first adoption
//		Patch:    patch,                            // your client's call
//	}.Claim(ctx, pods)
//	pods = claimed.Ours()
//
// [Claimer.Plan] is the dry run, which returns the same claims as data. The caller lists the
// objects, tries again, and decides what to do if an object could not be claimed. [Claimed] holds
// every object, and every error with its object.
//
// Differs from Kubernetes: a selector that is nil, empty or invalid, or that can match nothing, is
// an error, and nothing is adopted or released. Kubernetes' controller releases all of its pods if
// the selector is nil, and adopts every orphan of the namespace if it is empty. If the API server
// calls an adoption Invalid, that is an answer and not an error. Calls may run in parallel, errors
// keep their types, adopted objects are returned as the API server answered, and Claimer.Keep can
// keep an object that the filter leaves out.
//
// Every function is safe for concurrent use and does not change its input.
package selector

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
)

// ForReplicaSet returns the set-based selector of a ReplicaSet. It shares no
// memory with rs.
//
// Differs from Kubernetes: a nil, empty or invalid selector is an error that
// names the ReplicaSet. So is a nil rs.
func ForReplicaSet(rs *appsv1.ReplicaSet) (labels.Selector, error) {
	if rs == nil {
		return nil, errors.New("selector: replica set is nil")
	}
	sel, err := setBased(rs.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector: replica set %q: %w", object.Name(rs), err)
	}
	return sel, nil
}

// ForReplicationController returns the equality-based selector of a
// ReplicationController. It shares no memory with rc. A nil map is an empty one.
//
// Differs from Kubernetes: an empty selector, and one with a key or value that
// no label can have, is an error that names the ReplicationController. So is a
// nil rc.
func ForReplicationController(rc *corev1.ReplicationController) (labels.Selector, error) {
	if rc == nil {
		return nil, errors.New("selector: replication controller is nil")
	}
	sel, err := equalityBased(rc.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector: replication controller %q: %w", object.Name(rc), err)
	}
	return sel, nil
}

func setBased(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, object.CheckSelector(nil)
	}
	if len(s.MatchExpressions) == 0 && arePlain(s.MatchLabels) {
		return labels.SelectorFromValidatedSet(s.MatchLabels), nil
	}
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("selector is invalid: %w", err)
	}
	return sel, object.CheckSelector(sel)
}

func equalityBased(s map[string]string) (labels.Selector, error) {
	if arePlain(s) {
		return labels.SelectorFromValidatedSet(s), nil
	}
	sel, err := labels.ValidatedSelectorFromSet(s)
	if err != nil {
		return nil, fmt.Errorf("selector is invalid: %w", err)
	}
	return sel, object.CheckSelector(sel)
}
