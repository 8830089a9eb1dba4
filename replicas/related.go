// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/distinct"
	"github.com/replicakit/replicakit/internal/object"
)

// Related returns the children that belong to the owner or to one of its siblings, for use in Facts.Related. Siblings
// are owners with the same controller, such as the ReplicaSets of one Deployment. The parameter owners lists all
// possible siblings, including the owner itself.
//
// A child with a controller belongs to the sibling that is its controller, and a child without one to each sibling
// whose selector matches it. In both cases the two must be in the same namespace, unless the sibling is cluster-scoped.
// The function sel returns the selector of an owner, as selector.ForReplicaSet does. If sel is nil, or returns an
// error, nil or an empty selector for an owner, only children with a controller belong to it. Two controllers are the
// same if their UIDs are equal, or without UIDs, as with fake clients, if their namespace, group, kind and name are.
//
// The result contains the children in the order of the input, without nil entries. It is nil if the owner is nil or has
// no controller, even if the owner has children.
//
// Differs from Kubernetes: a pod whose controller is not a sibling is not in the result, even if its labels match.
func Related[O, C metav1.Object](owner metav1.Object, owners []O, sel func(O) (labels.Selector, error), children []C) []C {
	if object.IsNil(owner) {
		return nil
	}
	if metav1.GetControllerOfNoCopy(owner) == nil {
		return nil
	}
	siblings := map[types.UID][]sibling{}
	var selecting []sibling
	for _, o := range owners {
		if object.IsNil(o) || !object.SameController(owner, o) {
			continue
		}
		s := sibling{Owner: object.OwnerOf(o, schema.GroupKind{})}
		siblings[o.GetUID()] = append(siblings[o.GetUID()], s)
		if sel == nil {
			continue
		}
		var err error
		if s.selector, err = sel(o); err == nil && !object.IsNil(s.selector) && !s.selector.Empty() {
			selecting = append(selecting, s)
		}
	}
	var related []C
	for _, child := range withoutNil(children) {
		if belongs(child, siblings, selecting) {
			related = append(related, child)
		}
	}
	return related
}

// A sibling is an owner with the same controller as the owner that was passed to Related.
type sibling struct {
	object.Owner
	selector labels.Selector
}

// belongs reports whether a child belongs to one of the siblings (L3); selecting holds those with a usable selector.
func belongs(child metav1.Object, siblings map[types.UID][]sibling, selecting []sibling) bool {
	if ref := metav1.GetControllerOfNoCopy(child); ref != nil {
		return slices.ContainsFunc(siblings[ref.UID], func(s sibling) bool { return s.IsNamed(ref, child) && s.Reaches(child) })
	}
	return slices.ContainsFunc(selecting, func(s sibling) bool { return s.Reaches(child) && s.selector.Matches(labels.Set(child.GetLabels())) })
}

// related returns the children that the co-location criterion counts, each of them once.
func (s *Spec[T]) related(owned []T) []T {
	var others []T
	if s.Facts.Related != nil {
		others = withoutNil(s.Facts.Related())
	}
	switch {
	case len(others) == 0: // the criterion is skipped (L2)
		return nil
	case slices.EqualFunc(owned, others, func(p, q T) bool { return object.Same(p, q) }):
		return owned
	}
	candidates := slices.Concat(owned, others)
	// Facts.Related usually lists the owned pods, too. Counted twice, they would raise the ranks on their own nodes.
	again, once := repeated(candidates), candidates[:0]
	for i, child := range candidates {
		if len(again) > 0 && again[0] == i {
			again = again[1:]
			continue
		}
		once = append(once, child)
	}
	return once
}

// withoutNil returns the children that are not nil, in the same slice if none is nil.
func withoutNil[T metav1.Object](children []T) []T {
	if object.IndexNil(children) < 0 {
		return children
	}
	return slices.DeleteFunc(slices.Clone(children), object.NilOf[T]())
}

// repeated returns the indices of the objects that have the UID of an earlier one. Objects without a UID all differ.
func repeated[T metav1.Object](objs []T) []int {
	if pods, ok := any(objs).([]*corev1.Pod); ok { // pods are the usual case, and reading their fields is faster than calling methods
		return repeatedBy(pods, func(p *corev1.Pod) string { return string(p.UID) })
	}
	return repeatedBy(objs, func(obj T) string { return string(obj.GetUID()) })
}

func repeatedBy[T any](objs []T, uidOf func(T) string) (again []int) {
	seen := distinct.New(len(objs), func(i int) string { return uidOf(objs[i]) })
	var uids [32]string // a small chunk, so that the processor can load several UIDs in parallel
	at := 0
	for chunk := range slices.Chunk(objs, len(uids)) {
		for i, obj := range chunk {
			uids[i] = uidOf(obj)
		}
		for _, uid := range uids[:len(chunk)] {
			if uid != "" && seen.Add(at, uid) != at {
				again = append(again, at)
			}
			at++
		}
	}
	return again
}
