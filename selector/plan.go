// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/replicakit/replicakit/internal/object"
)

// Claims contains the decision for each object. Every active object is in exactly one list, and
// each list is in the order of the input. The lists are new, but the objects are not copied.
type Claims[T metav1.Object] struct {
	// Owned contains the owner's objects that match. These objects do not need an API call.
	Owned []T
	// Adopt contains the orphans that match. An orphan does not belong to the owner until the API
	// server has accepted the adopt patch.
	Adopt []T
	// Release contains the owner's objects that no longer match. Each of these objects needs a
	// release patch.
	Release []T
	// Ignored contains all other objects. The objects of other owners are in Ignored. An orphan is
	// in Ignored if it does not match, is being deleted, or is in another namespace. If an object
	// of the owner does not match, and Keep returns true for this object, the object is also in
	// Ignored. If the owner is being deleted, all orphans are in Ignored. In this case, Ignored
	// also contains the owner's objects that do not match.
	Ignored []T
}

// Plan decides which objects the owner already owns, and which it should adopt, release or ignore.
// In Kubernetes' pkg/controller, ClaimObject makes the same decision for one object. Plan is the
// dry run of Claim and makes no API calls. Plan requires Owner, and at least one of Selector and
// Filter. If the owner has no UID, Plan also requires Kind.
//
// An object belongs to the owner whose UID is in the object's controller reference. An object that
// has no controller reference is an orphan, even if it has other owner references. If neither the
// owner nor the reference has a UID, for example with a fake client, the group, kind and name are
// compared. An owner that is being deleted neither adopts nor releases objects. An owner adopts
// only objects in its own namespace. An owner without a namespace is cluster-scoped and adopts
// objects in all namespaces.
//
// Finished and terminating pods of the owner are claimed or released like other pods, unless Active
// returns false for them. An object that is listed twice is in the result twice.
//
// Plan returns an error if the owner is nil or has neither UID nor name. Plan also returns an error
// if the selector is empty or cannot match any object, or if there is neither a selector nor a
// filter. If an object is nil, including a typed nil, Plan returns an error that contains the index
// of the object. If Plan returns an error, the Claims are empty.
func (c Claimer[T]) Plan(objs []T) (Claims[T], error) {
	r, err := c.rule()
	if err != nil {
		return Claims[T]{}, err
	}
	if i := object.IndexNil(objs); i >= 0 {
		return Claims[T]{}, fmt.Errorf("selector: owner %q: object %d is nil", object.Name(c.Owner), i)
	}
	var claims Claims[T]
	var b block[T]
	for some := range slices.Chunk(objs, blockSize) {
		b.fill(some, c.Active)
		b.judge(&r)
		for i, obj := range b.objs[:b.n] {
			claims.add(obj, b.verdicts[i], len(objs))
		}
	}
	return claims, nil
}

// add appends obj to the list for the verdict v. The argument n is the total number of objects.
func (c *Claims[T]) add(obj T, v verdict, n int) {
	switch v {
	case own:
		if c.Owned == nil { // allocate the list only once, because usually all objects are owned
			c.Owned = make([]T, 0, n)
		}
		c.Owned = append(c.Owned, obj)
	case adopt:
		c.Adopt = append(c.Adopt, obj)
	case release:
		c.Release = append(c.Release, obj)
	default:
		c.Ignored = append(c.Ignored, obj)
	}
}

// A verdict identifies the list in Claims that an object belongs to.
type verdict uint8

const (
	ignore verdict = iota
	own
	adopt
	release
)

// A rule holds the values that determine the verdict on an object. Each time Plan is called, it
// makes one rule.
type rule struct {
	owner        object.Owner
	deleting     bool
	equal        object.Labels   // the labels that an object must have, if the selector is known to require nothing else
	selector     labels.Selector // the selector if it may require anything else, and otherwise nil
	filter, keep func(metav1.Object) bool
}

// equalities returns the labels that the selector requires, or nil if the selector has other
// requirements. Direct comparison with these labels reduces the time of a claim to two thirds. If
// the selector has another type than the result of labels.NewSelector, equalities returns nil,
// because the Matches method of another type may check more than the requirements.
func equalities(sel labels.Selector) object.Labels {
	if set, ok := sel.(labels.ValidatedSetSelector); ok {
		return object.ListLabels(set)
	}
	if reflect.TypeOf(sel) != reflect.TypeOf(labels.NewSelector()) {
		return nil
	}
	requirements, _ := sel.Requirements()
	if len(requirements) == 0 {
		return nil
	}
	equal := make(object.Labels, len(requirements))
	for i, r := range requirements {
		values := r.ValuesUnsorted()
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if len(values) == 1 {
				equal[i] = object.Label{Key: r.Key(), Value: values[0]}
				continue
			}
		}
		return nil
	}
	return equal
}

func (c Claimer[T]) rule() (rule, error) {
	if err := checkOwner(c.Owner); err != nil {
		return rule{}, err
	}
	if c.Selector != nil || c.Filter == nil {
		if err := object.CheckSelector(c.Selector); err != nil {
			return rule{}, fmt.Errorf("selector: owner %q: %w", object.Name(c.Owner), err)
		}
	}
	r := rule{
		owner:    object.OwnerOf(c.Owner, c.Kind.GroupKind()),
		deleting: c.Owner.GetDeletionTimestamp() != nil,
		equal:    equalities(c.Selector),
		filter:   untyped(c.Filter),
		keep:     untyped(c.Keep),
	}
	if r.equal == nil {
		r.selector = c.Selector
	}
	return r, nil
}

// untyped returns f as a function for any object. If f is nil, the result is nil.
func untyped[T metav1.Object](f func(T) bool) func(metav1.Object) bool {
	if f == nil {
		return nil
	}
	return func(obj metav1.Object) bool {
		typed, ok := obj.(T)
		return ok && f(typed)
	}
}

// blockSize is the maximum number of objects in a block. Each step reads one fact of all objects of a
// block before the next step starts. A block is small enough to stay in the processor's cache
// between two steps. It is large enough for the processor to load several objects in parallel.
const blockSize = 32

// A block holds a few objects, with the facts about each object.
type block[T metav1.Object] struct {
	n           int // the number of objects in the block
	objs        [blockSize]T
	controllers [blockSize]*metav1.OwnerReference
	labels      [blockSize]map[string]string
	equal       [blockSize]bool    // whether the labels include rule.equal; has no meaning for ignored objects
	verdicts    [blockSize]verdict // first on the assumption that the objects match
}

// fill stores the active objects of objs in the block.
func (b *block[T]) fill(objs []T, active func(T) bool) {
	b.n = 0
	for _, obj := range objs {
		if active == nil || active(obj) {
			b.objs[b.n] = obj
			b.n++
		}
	}
}

// judge determines the verdict on each object in the block.
func (b *block[T]) judge(r *rule) {
	objs := b.objs[:b.n]
	object.Controllers(objs, b.controllers[:])
	for i, obj := range objs {
		b.verdicts[i] = r.verdictIfMatching(obj, b.controllers[i])
	}
	if r.equal != nil || r.selector != nil { // GetLabels of an unstructured object makes a copy
		object.LabelsOf(objs, b.labels[:])
	}
	for i, v := range b.verdicts[:b.n] {
		if v == ignore { // in a list of all pods of a namespace, these are most of them, and their labels decide nothing
			b.labels[i] = nil
		}
	}
	r.equal.InEach(b.labels[:b.n], b.equal[:])
	for i, obj := range objs {
		switch v := &b.verdicts[i]; {
		case *v == ignore, b.equal[i] && r.matches(obj, b.labels[i]): // the first verdict stands
		case *v == own && !r.deleting && (r.keep == nil || !r.keep(obj)):
			*v = release
		default:
			*v = ignore
		}
	}
}

// matches reports whether an object that has the labels rule.equal meets all other requirements. The filter is called
// only for objects that the selector matches (C11).
func (r *rule) matches(obj metav1.Object, set map[string]string) bool {
	return (r.selector == nil || r.selector.Matches(labels.Set(set))) && (r.filter == nil || r.filter(obj))
}

// verdictIfMatching determines the verdict on an object, assuming that the object matches.
func (r *rule) verdictIfMatching(obj metav1.Object, controller *metav1.OwnerReference) verdict {
	switch {
	case controller != nil && r.owner.IsNamed(controller, obj):
		return own
	case controller != nil, r.deleting, obj.GetDeletionTimestamp() != nil, !r.owner.Reaches(obj):
		return ignore
	default:
		return adopt
	}
}
