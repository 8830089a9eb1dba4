// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/selector"
)

// Manage computes a plan that gives the owner the children that spec describes. The plan says which children to adopt,
// release, change and delete, and how many to create. Manage makes no API calls and does not change its arguments. The
// comments on Plan explain how to carry it out. Children are pods or objects of any other type.
//
// The parameter objs lists the objects that can be children: all objects of the children's type in the owner's
// namespace, or for a cluster-scoped owner in all namespaces. Those that another owner controls may be left out. Manage
// ignores inactive objects unless they must be discarded, and if the owner is in a namespace, objects in other
// namespaces. The plan refers to the objects in objs, and the lists in Plan.Claims keep their order, which does not
// affect which objects are deleted.
//
// If Manage returns an error, the plan is zero. The error names the owner and the field, and is a *RefusedError if the
// owner's own spec is wrong. A nil object in objs is an error, and so is a child that is listed twice, unless the plan
// ignores it. Two entries are the same child if their UIDs are equal, but entries without a UID, such as those of fake
// clients, are all different.
//
// Differs from Kubernetes: Manage refuses negative replicas, a selector that matches everything or nothing, and a
// template that the selector does not match. In these cases Kubernetes panics, adopts every orphan, releases every pod,
// or creates pods forever.
func Manage[T metav1.Object](objs []T, spec Spec[T]) (Plan[T], error) {
	if err := spec.check(); err != nil {
		return Plan[T]{}, err
	}
	if err := spec.noneNil(objs); err != nil {
		return Plan[T]{}, err
	}
	parts, err := spec.parts(objs)
	if err != nil {
		return Plan[T]{}, err
	}
	claims, err := spec.claims(objs, parts)
	if err != nil {
		return Plan[T]{}, err
	}
	claimed := claims.Owned // the usual case
	if len(claims.Adopt)+len(claims.Release) > 0 {
		claimed = slices.Concat(claims.Owned, claims.Adopt, claims.Release)
	}
	owned := claimed[:len(claimed)-len(claims.Release)]
	owner := object.OwnerOf(spec.Owner, spec.Kind.GroupKind())
	ours := func(obj T) bool { return owner.Controls(obj) && spec.Selector.Matches(labels.Set(obj.GetLabels())) }
	ended := spec.ended(objs, ours)
	if err := spec.refuseRepeated(join(claimed, ended)); err != nil { // objects that the plan ignores may be listed twice
		return Plan[T]{}, err
	}
	scale, blocked, err := spec.scaleParts(spec.assign(parts, owned, ended, spec.marked(objs, ours)), objs)
	if err == nil && scale.maker != nil {
		err = scale.maker.err
	}
	if err != nil {
		return Plan[T]{}, err
	}
	return Plan[T]{Claims: claims, Scale: scale, Blocked: blocked}, nil
}

// ScaleTo is the second half of Manage. It decides how many children to create, and which to change or delete. The
// parameter owned lists the owner's children, and ScaleTo does not check whether the owner controls them. It ignores
// inactive children, unless they must be discarded. If a patch for Plan.Claims failed, call ScaleTo before you create,
// change or delete anything, and use its result instead of Plan.Scale. Where Manage would return a blocked plan, the
// Scale contains nothing to do, and only its field Outdated may be set.
//
// A loop that builds its children by itself needs neither Spec.Selector nor Spec.New nor Spec.Template, because only
// Scale.New uses them, and returns an error if it cannot. All other errors are those of Manage. No new child gets a
// name in Facts.Taken or the name of a child in owned, but ScaleTo knows the names of no other objects.
func ScaleTo[T metav1.Object](owned []T, spec Spec[T]) (Scale[T], error) {
	if err := spec.begin(); err != nil {
		return Scale[T]{}, err
	}
	active, err := spec.active(owned)
	if err != nil {
		return Scale[T]{}, err
	}
	ended := spec.ended(owned, func(T) bool { return true })
	if err := spec.refuseRepeated(join(active, ended)); err != nil {
		return Scale[T]{}, err
	}
	parts, err := spec.parts(owned)
	if err != nil {
		return Scale[T]{}, err
	}
	scale, _, err := spec.scaleParts(spec.assign(parts, active, ended, spec.marked(owned, func(T) bool { return true })), owned)
	return scale, err
}

// join returns the children of both lists, or the slice a itself if b is empty.
func join[T any](a, b []T) []T {
	if len(b) == 0 {
		return a
	}
	return slices.Concat(a, b)
}

// ended finds the children that must be discarded, sorted by name; ours reports whether a child is the owner's.
func (s *Spec[T]) ended(objs []T, ours func(T) bool) (ended []T) {
	if s.Rules.NoneEnds() {
		return nil
	}
	owner := object.OwnerOf(s.Owner, s.Kind.GroupKind())
	for _, obj := range objs {
		if !isDeleted(obj) && owner.Reaches(obj) && ours(obj) && s.Rules.Ended(obj) {
			ended = append(ended, obj)
		}
	}
	slices.SortFunc(ended, func(a, b T) int {
		return cmp.Or(cmp.Compare(object.Name(a), object.Name(b)), cmp.Compare(a.GetUID(), b.GetUID()))
	})
	return ended
}

// noneNil returns an error if an object is nil.
func (s *Spec[T]) noneNil(objs []T) error {
	if i := object.IndexNil(objs); i >= 0 {
		return s.failure("objs[%d] is nil", i)
	}
	return nil
}

// active selects the children that count as replicas.
func (s *Spec[T]) active(objs []T) ([]T, error) {
	if err := s.noneNil(objs); err != nil {
		return nil, err
	}
	active, counts := make([]T, 0, len(objs)), s.counts()
	for _, obj := range objs {
		if counts(obj) {
			active = append(active, obj)
		}
	}
	return active, nil
}

// counts returns the function that reports whether a child of the owner counts as a replica.
func (s *Spec[T]) counts() func(T) bool {
	namespace, isActive := s.Owner.GetNamespace(), s.Rules.active()
	if s.Rules.Active == nil && s.Rules.Leaving == nil && s.Rules.NoneEnds() { // the usual case, where the fields of pods are read without method calls
		podCounts := func(p *corev1.Pod) bool {
			return (namespace == "" || namespace == p.Namespace) && pod.IsActive(p)
		}
		if counts, ok := any(podCounts).(func(T) bool); ok {
			return counts
		}
	}
	return func(obj T) bool {
		return (namespace == "" || namespace == obj.GetNamespace()) && isActive(obj)
	}
}

// claims decides which children to adopt, release, keep or ignore.
func (s *Spec[T]) claims(objs []T, parts []part[T]) (selector.Claims[T], error) {
	claimer := selector.Claimer[T]{Owner: s.Owner, Kind: s.Kind, Active: s.counts(), Selector: s.Selector, Filter: s.mayAdopt(objs, parts)}
	return claimer.Plan(objs)
}

func (s *Spec[T]) refuseRepeated(children []T) error {
	if again := repeated(children); len(again) > 0 {
		child := children[again[0]]
		return s.failure("child %q (%s) is listed twice", object.Name(child), child.GetUID())
	}
	return nil
}
