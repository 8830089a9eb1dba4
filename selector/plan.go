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

// Claims says what an owner should do with each object. Every object that counts is in exactly one
// list, and each list is in the order of the input. The lists are new, but the objects are not
// copied.
type Claims[T metav1.Object] struct {
	// Owned are the owner's objects that match. The objects in Owned need no call.
	Owned []T
	// Adopt are orphans that match. An orphan belongs to the owner only when the API server has
	// accepted the orphan's adopt patch.
	Adopt []T
	// Release are the owner's objects that no longer match. Each object in Release needs a release
	// patch.
	Release []T
	// Ignored are all other objects. These are objects of other owners, and orphans that do not
	// match, are being deleted or are in another namespace. An object of the owner that does not
	// match is also in Ignored if Keep is true for it. If the owner is being deleted, all orphans
	// and all of the owner's objects that do not match are in Ignored.
	Ignored []T
}

// Plan decides for each object whether the owner has it, should adopt it, should release it or
// should leave it alone. In Kubernetes' pkg/controller, ClaimObject decides the same for one
// object. Plan is the dry run of Claim and makes no API call. Plan needs Owner, and Selector or
// Filter. If the owner has no UID, Plan also needs Kind.
//
// The UID in the controller reference alone decides which owner an object belongs to. If an object
// has only other owner references, it is an orphan. If neither the owner nor the reference has a
// UID, as with fake clients, group, kind and name decide. An owner that is being deleted neither
// adopts nor releases objects. An owner adopts only objects in its own namespace. An owner without
// a namespace is cluster-scoped and adopts objects in all namespaces.
//
// Finished and terminating pods of the owner are claimed or released like other pods, unless Active
// is false for them. If an object is listed twice, it is in the result twice.
//
// Plan returns an error if the owner is nil or has neither UID nor name. Plan returns an error if
// the selector is empty or can match nothing, or if there is neither a selector nor a filter. Plan
// also returns an error if an object is nil, even a typed nil, and the error names the index of the
// object. If Plan returns an error, the Claims are empty.
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

// add appends obj to the list that v names. n is the number of all objects.
func (c *Claims[T]) add(obj T, v verdict, n int) {
	switch v {
	case own:
		if c.Owned == nil { // nearly always, all objects are owned, so allocate once
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

// A verdict names the list of Claims to which an object belongs.
type verdict uint8

const (
	ignore verdict = iota
	own
	adopt
	release
)

// A rule holds what the verdict on an object depends on. A Claimer makes its rule once for each
// Plan.
type rule struct {
	owner        object.Owner
	deleting     bool
	selector     labels.Selector // nil if the filter alone decides
	equal        object.Labels   // the labels that the selector requires, or nil if it requires anything else
	filter, keep func(metav1.Object) bool
}

// equalities returns the labels that the selector requires, or nil if the selector requires
// anything else. With these labels, a claim takes two thirds of the time. If the selector has the
// caller's own type, equalities returns nil, because such a selector may check more than its
// requirements.
func equalities(sel labels.Selector) object.Labels {
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
	return rule{
		owner:    object.OwnerOf(c.Owner, c.Kind.GroupKind()),
		deleting: c.Owner.GetDeletionTimestamp() != nil,
		selector: c.Selector,
		equal:    equalities(c.Selector),
		filter:   untyped(c.Filter),
		keep:     untyped(c.Keep),
	}, nil
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

// blockSize is the number of objects in a block. Each step is done for all objects of a block
// before the next step. A block is small enough to stay in the processor's cache until the next
// step. A block is large enough that the processor reads several objects at once.
const blockSize = 32

// A block holds a few objects, and what is known about each of them.
type block[T metav1.Object] struct {
	n           int // how many objects there are
	objs        [blockSize]T
	controllers [blockSize]*metav1.OwnerReference
	labels      [blockSize]map[string]string
	verdicts    [blockSize]verdict
}

// fill fills the block with the objects that count.
func (b *block[T]) fill(objs []T, active func(T) bool) {
	b.n = 0
	for _, obj := range objs {
		if active == nil || active(obj) {
			b.objs[b.n] = obj
			b.n++
		}
	}
}

// judge makes the verdict on each object. The selector is checked first, and the filter is called
// only for objects that the selector matches (C11).
func (b *block[T]) judge(r *rule) {
	objs := b.objs[:b.n]
	object.Controllers(objs, b.controllers[:])
	for i, obj := range objs {
		b.verdicts[i] = r.whose(obj, b.controllers[i])
	}
	if r.selector != nil {
		b.matchLabels(r)
	}
	for i, obj := range objs {
		v := &b.verdicts[i]
		if r.filter != nil && v.stands() && !r.filter(obj) {
			v.fall()
		}
		if *v == release && (r.deleting || r.keep != nil && r.keep(obj)) {
			*v = ignore
		}
	}
}

// matchLabels changes the verdicts on objects that the selector does not match. Each label is
// checked for all objects before the next label.
func (b *block[T]) matchLabels(r *rule) {
	object.LabelsOf(b.objs[:b.n], b.labels[:])
	for i := range b.n {
		if v := &b.verdicts[i]; v.stands() {
			if r.equal == nil && !r.selector.Matches(labels.Set(b.labels[i])) || len(b.labels[i]) == 0 && r.equal != nil {
				v.fall()
			}
		}
	}
	for _, want := range r.equal {
		for i := range b.n {
			if v := &b.verdicts[i]; v.stands() {
				if value, ok := b.labels[i][want.Key]; !ok || value != want.Value {
					v.fall()
				}
			}
		}
	}
}

// whose returns the verdict on an object, assuming that the object matches.
func (r *rule) whose(obj metav1.Object, controller *metav1.OwnerReference) verdict {
	switch {
	case controller != nil && r.owner.IsNamed(controller, obj):
		return own
	case controller != nil, r.deleting, obj.GetDeletionTimestamp() != nil, !r.owner.Reaches(obj):
		return ignore
	default:
		return adopt
	}
}

// stands reports whether a matching object with this verdict belongs to the owner or will be
// adopted.
func (v verdict) stands() bool { return v == own || v == adopt }

// fall changes a verdict for a matching object to the verdict for an object that does not match.
func (v *verdict) fall() {
	if *v == own {
		*v = release
	} else {
		*v = ignore
	}
}
