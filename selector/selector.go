// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selector decides which objects belong to an owner, which orphans the owner adopts, and
// which objects the owner releases. The package also makes the API calls that adopt and release
// objects.
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
// [Claimer.Plan] is the dry run, which returns the decisions without making API calls. The caller
// lists the objects, retries failed calls, and decides what to do if an object could not be
// claimed. [Claimed] contains every active object, and the error for each object whose call failed.
//
// Differs from Kubernetes: if a selector is nil, empty or invalid, or cannot match any object, the
// caller gets an error, and nothing is adopted or released. If the selector is nil, Kubernetes'
// controller releases all of its pods. If the selector is empty, Kubernetes' controller adopts
// every orphan in the namespace. If the API server refuses an adoption with Invalid, Claim returns
// no error, and the orphan is in Claimed.Refused. API calls may be made in parallel, and their
// errors are wrapped, so that errors.As finds them. Adopted objects are returned as the API server
// returned them. Claimer.Keep can prevent the release of an object that the filter does not match.
//
// Every function is safe for concurrent use and does not change its input.
package selector

import (
	"errors"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
)

// ForReplicaSet returns the set-based selector of a ReplicaSet. The selector shares no memory with
// rs.
//
// Differs from Kubernetes: if the selector is nil, empty or invalid, ForReplicaSet returns an error
// that names the ReplicaSet. If rs is nil, ForReplicaSet also returns an error.
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

// ForReplicationController returns the equality-based selector of a ReplicationController. The
// selector shares no memory with rc. A nil map counts as empty.
//
// Differs from Kubernetes: if the selector is empty, or contains an invalid label key or value,
// ForReplicationController returns an error that names the ReplicationController. If rc is nil,
// ForReplicationController also returns an error.
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
		return labels.ValidatedSetSelector(maps.Clone(s.MatchLabels)), nil
	}
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("selector is invalid: %w", err)
	}
	return sel, object.CheckSelector(sel)
}

func equalityBased(s map[string]string) (labels.Selector, error) {
	if arePlain(s) {
		return labels.ValidatedSetSelector(maps.Clone(s)), nil
	}
	sel, err := labels.ValidatedSelectorFromSet(s)
	if err != nil {
		return nil, fmt.Errorf("selector is invalid: %w", err)
	}
	return sel, object.CheckSelector(sel)
}
