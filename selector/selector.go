// Package selector decides which objects an owner has: which it owns, which
// orphans it adopts, which it lets go, and with what patch.
//
// The answers are data and bytes. Sending the patches, judging the API server's
// answers and trying again are left to the caller:
//
//	sel, err := selector.ForReplicaSet(rs)          // nil, empty and invalid are refused
//	claims, err := selector.Claim(rs, sel, pods)    // nothing is called: a dry run
//	mayAdopt := selector.CanAdopt(readLive, rs)     // asks the API server before the first adoption
//	patch, err := selector.AdoptPatch(rs, kind, claims.Adopt[0].UID)
//	patch, err = selector.ReleasePatch(rs.UID, claims.Release[0].UID)
//
// Built-in kinds take [AdoptPatch] and [ReleasePatch]; custom resources, which
// refuse strategic merge patches, take [AdoptMergePatch] and
// [ReleaseMergePatch].
//
// Differs from Kubernetes: a selector that is nil, empty, invalid or that can
// match nothing is an error, and nothing is adopted or released; Kubernetes'
// controller lets all of its pods go on the first and adopts every orphan of
// the namespace on the second. Only labels decide: there are no filters, which
// release an owned pod where they answer false.
//
// Every function is safe for concurrent use and leaves its input as it was.
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
// names the ReplicaSet (W6, W7, Y15). So is a nil rs.
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
		return nil, errNil
	}
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("selector is invalid: %w", err)
	}
	return sel, usable(sel)
}

func equalityBased(s map[string]string) (labels.Selector, error) {
	sel, err := labels.ValidatedSelectorFromSet(s)
	if err != nil {
		return nil, fmt.Errorf("selector is invalid: %w", err)
	}
	return sel, usable(sel)
}

var errNil = errors.New("selector is nil")

// usable refuses the selectors that no owner can mean: acting on them would
// release everything or adopt everything.
func usable(sel labels.Selector) error {
	if object.IsNil(sel) {
		return errNil
	}
	if sel.Empty() {
		return errors.New("selector is empty")
	}
	if _, selectable := sel.Requirements(); !selectable { // what a nil *metav1.LabelSelector is converted to
		return errors.New("selector matches nothing")
	}
	return nil
}
