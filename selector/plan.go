package selector

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/replicakit/replicakit/internal/object"
)

// Claims says what an owner should do about each object: every object that was
// passed in stands in exactly one list, in the order of the input. The objects
// are the caller's own and are shared, the lists are not.
type Claims[T metav1.Object] struct {
	// Owned are ours already and match: nothing needs to be done.
	Owned []T
	// Adopt are orphans that match. They become ours when the API server has
	// taken an adopt patch for each, not before.
	Adopt []T
	// Release are ours and match no longer: each needs a release patch.
	Release []T
	// Ignored are no business of ours: owned by others, not matching, orphans
	// that are being deleted or stand in another namespace. What the owner has
	// and Keep holds back stands here too, and while the owner is being deleted
	// everything that it has and that does not match.
	Ignored []T
}

// Plan sorts objs into those that the owner owns, should adopt, should release
// and should leave alone, as ClaimObject of Kubernetes' pkg/controller does for
// one object. It calls no API: it is the dry run of Claim. Of the Claimer it
// needs Owner, and Selector or Filter; Kind if the owner has no UID.
//
// Who owns an object is decided by the UID of its controller reference alone; a
// plain owner reference leaves it an orphan. If the owner and the reference both
// have no UID, as with fake clients, group, kind and name decide. An owner that
// is being deleted neither adopts nor releases. It adopts in its own namespace
// only; an owner without a namespace is cluster-scoped and adopts in all.
//
// Finished and terminating pods that are owned are claimed or released like
// others: pass active pods if only these count. An object listed twice is sorted
// twice.
//
// A nil owner, one with neither UID nor name, a selector that is empty or matches
// nothing, neither a selector nor a filter, and a nil object (also a typed nil;
// the error tells its index) are errors, and no claims are made.
func (c Claimer[T]) Plan(objs []T) (Claims[T], error) {
	r, err := c.rule()
	if err != nil {
		return Claims[T]{}, err
	}
	var claims Claims[T]
	isNil := object.NilOf[T]()
	for i, obj := range objs {
		if isNil(obj) {
			return Claims[T]{}, fmt.Errorf("selector: owner %q: object %d is nil", object.Name(c.Owner), i)
		}
		v := r.judge(obj)
		if v == Own && claims.Owned == nil { // nearly always everything: grow once
			claims.Owned = make([]T, 0, len(objs)-i)
		}
		claims.Add(obj, v)
	}
	return claims, nil
}

// Judge returns the function by which Plan sorts, for callers that go through their
// objects themselves: it says what the owner should do about one. A nil
// object is ignored. Of the Claimer it needs what Plan needs, and refuses what Plan refuses.
func (c Claimer[T]) Judge() (func(obj T) Verdict, error) {
	r, err := c.rule()
	if err != nil {
		return nil, err
	}
	isNil := object.NilOf[T]()
	return func(obj T) Verdict {
		if isNil(obj) {
			return Ignore
		}
		return r.judge(obj)
	}, nil
}

// Add puts obj into the list of its verdict.
func (c *Claims[T]) Add(obj T, v Verdict) {
	switch v {
	case Own:
		c.Owned = append(c.Owned, obj)
	case Adopt:
		c.Adopt = append(c.Adopt, obj)
	case Release:
		c.Release = append(c.Release, obj)
	default:
		c.Ignored = append(c.Ignored, obj)
	}
}

// A Verdict says what an owner should do about one object: it names the list of
// Claims that the object stands in.
type Verdict uint8

// The verdicts.
const (
	Ignore Verdict = iota
	Own
	Adopt
	Release
)

// A rule is what the verdict on an object depends on, read once an owner.
type rule struct {
	owner        object.Owner
	namespace    string
	deleting     bool
	selector     labels.Selector // nil if the filter alone decides
	equal        object.Labels   // all that the selector asks for, if it asks for nothing else
	filter, keep func(metav1.Object) bool
}

// equalities returns the labels that the selector asks for, or nil if it asks for
// anything else: so a claim takes two thirds of the time. A selector of the
// caller's own making may match by more than its requirements.
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
		owner:     object.OwnerOf(c.Owner, c.Kind.GroupKind()),
		namespace: c.Owner.GetNamespace(),
		deleting:  c.Owner.GetDeletionTimestamp() != nil,
		selector:  c.Selector,
		equal:     equalities(c.Selector),
		filter:    untyped(c.Filter),
		keep:      untyped(c.Keep),
	}, nil
}

// untyped returns f for any object. It is nil if f is.
func untyped[T metav1.Object](f func(T) bool) func(metav1.Object) bool {
	if f == nil {
		return nil
	}
	return func(obj metav1.Object) bool {
		typed, ok := obj.(T)
		return ok && f(typed)
	}
}

func (r *rule) judge(obj metav1.Object) Verdict {
	ref := metav1.GetControllerOfNoCopy(obj)
	switch {
	case ref == nil:
		return r.judgeOrphan(obj)
	case !r.owner.IsNamed(ref, obj):
		return Ignore
	case r.matches(obj):
		return Own
	case r.deleting, r.keep != nil && r.keep(obj):
		return Ignore
	default:
		return Release
	}
}

func (r *rule) judgeOrphan(obj metav1.Object) Verdict {
	switch {
	case r.deleting, obj.GetDeletionTimestamp() != nil:
		return Ignore
	case !reaches(r.namespace, obj):
		return Ignore
	case !r.matches(obj):
		return Ignore
	default:
		return Adopt
	}
}

// matches asks the selector first, and the filter only about what it selects
// (C11).
func (r *rule) matches(obj metav1.Object) bool {
	switch {
	case r.equal != nil:
		if !r.equal.In(obj.GetLabels()) {
			return false
		}
	case r.selector != nil:
		if !r.selector.Matches(labels.Set(obj.GetLabels())) {
			return false
		}
	}
	return r.filter == nil || r.filter(obj)
}
