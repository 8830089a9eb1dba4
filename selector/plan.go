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

// Claims says what an owner should do about each object. Every object that counts is in exactly one
// list, in the order of the input. The objects are not copied, and the lists are new.
type Claims[T metav1.Object] struct {
	// Owned are the owner's objects that match. They need no call.
	Owned []T
	// Adopt are orphans that match. Each belongs to the owner only when the API
	// server has accepted its adopt patch.
	Adopt []T
	// Release are the owner's objects that no longer match. Each needs a release patch.
	Release []T
	// Ignored are all others. These are objects of other owners, and orphans that do not match, are
	// being deleted or are in another namespace. The owner's own objects that do not match are here
	// too if Keep is true for them, or if the owner is being deleted.
	Ignored []T
}

// Plan sorts objs into those that the owner has, should adopt, should release and should leave
// alone, as ClaimObject of Kubernetes' pkg/controller does for one object. It is the dry run of
// Claim and calls no API. It needs Owner, and Selector or Filter. If the owner has no UID, it needs
// Kind too.
//
// The UID of the controller reference alone decides who owns an object. An object that has only
// other owner references is an orphan. If neither the owner nor the reference has a UID, as with
// fake clients, group, kind and name decide. An owner that is being deleted neither adopts nor
// releases. An owner adopts in its own namespace only. An owner without a namespace is
// cluster-scoped and adopts in all namespaces.
//
// Finished and terminating pods of the owner are claimed or released like others, unless Active is
// false for them. An object that is listed twice is sorted twice.
//
// It is an error if the owner is nil or has neither UID nor name, if the selector is empty or
// matches nothing, or if there is neither a selector nor a filter. It is also an error if an object
// is nil, even a typed nil. The error names its index. With an error, there are no claims.
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

// add appends obj to the list that v names. There are at most n objects.
func (c *Claims[T]) add(obj T, v verdict, n int) {
	switch v {
	case own:
		if c.Owned == nil { // nearly always all objects, so grow once
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

// A rule is what the verdict on an object depends on. It is read once for each owner.
type rule struct {
	owner        object.Owner
	deleting     bool
	selector     labels.Selector // nil if the filter alone decides
	equal        object.Labels   // all that the selector asks for, if it asks for nothing else
	filter, keep func(metav1.Object) bool
}

// equalities returns the labels that the selector asks for, or nil if it asks for anything else.
// With them, a claim takes two thirds of the time. A selector of the caller's own type returns nil,
// because it may match by more than its requirements.
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

// untyped returns f for any object. It is nil if f is nil.
func untyped[T metav1.Object](f func(T) bool) func(metav1.Object) bool {
	if f == nil {
		return nil
	}
	return func(obj metav1.Object) bool {
		typed, ok := obj.(T)
		return ok && f(typed)
	}
}

// blockSize is how many objects one question is asked about before the next. They are few enough to
// stay in the cache of the processor for the next question, and enough that it reads several at
// once.
const blockSize = 32

// A block is a few objects, and what is known about each of them.
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

// judge asks the selector first, and the filter only about objects that it selects (C11).
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

// matchLabels checks one label after the other.
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

// whose returns the verdict on an object, assuming that it matches.
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

// stands reports whether the object, if it matches, is the owner's or will be.
func (v verdict) stands() bool { return v == own || v == adopt }

// fall changes the verdict on an object that matches to that on one that does not.
func (v *verdict) fall() {
	if *v == own {
		*v = release
	} else {
		*v = ignore
	}
}
