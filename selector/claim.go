package selector

import (
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// Object is any API object that can be owned or own: *corev1.Pod,
// *unstructured.Unstructured, a custom resource's type, or metav1.Object itself
// for a mixed list.
type Object interface {
	comparable
	metav1.Object
}

// Claims says what an owner should do about each object: every object that was
// passed in stands in exactly one list, in the order of the input. The objects
// are the caller's own and are shared, the lists are not.
type Claims[T Object] struct {
	// Owned are ours already and match: nothing needs to be done (C2, C28).
	Owned []T
	// Adopt are orphans that match. They become ours when the API server has
	// taken an adopt patch for each, not before; ask CanAdopt first (C8).
	Adopt []T
	// Release are ours and match no longer: each needs a release patch (C4).
	Release []T
	// Ignored are no business of ours: owned by others, not matching, orphans
	// that are being deleted or stand in another namespace. While the owner is
	// being deleted, what it owns but does not match stands here as well (C3).
	Ignored []T
}

// Claim sorts objs into those that the owner owns, should adopt, should release
// and should leave alone, as ClaimObject of pkg/controller does for one object
// (C1-C8). Nothing is called: Claim is its own dry run.
//
// Who owns an object is decided by the UID of its controller reference alone
// (C9); a plain owner reference leaves it an orphan (C10). An owner that is
// being deleted neither adopts nor releases. It adopts in its own namespace
// only; an owner without a namespace is cluster-scoped and adopts in all.
//
// Claim does not look at anything but metadata: finished and terminating pods
// that are owned are claimed or released like others, so pass active pods where
// only these count. An object listed twice is sorted twice.
//
// A nil owner, an owner without UID, a nil, empty or nothing-matching selector,
// and a nil object (also a typed nil; the error tells its index) are errors, and
// no claims are made.
//
// Differs from Kubernetes: see the package comment.
func Claim[T Object](owner metav1.Object, sel labels.Selector, objs []T) (Claims[T], error) {
	c, err := newClaimer(owner, sel)
	if err != nil {
		return Claims[T]{}, err
	}
	var claims Claims[T]
	var zero T
	mixed := reflect.TypeFor[T]().Kind() == reflect.Interface // only there can a nil pointer differ from the zero T
	for i, obj := range objs {
		if obj == zero || mixed && object.IsNil(obj) {
			return Claims[T]{}, fmt.Errorf("selector: owner %q: object %d is nil", object.Name(owner), i)
		}
		claims.add(obj, c.judge(obj), len(objs)-i)
	}
	return claims, nil
}

// add puts obj into the list of its verdict; at most room objects are still to
// come, obj included.
func (c *Claims[T]) add(obj T, v verdict, room int) {
	switch v {
	case own:
		if c.Owned == nil { // nearly always everything: grow once
			c.Owned = make([]T, 0, room)
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

type verdict uint8

const (
	ignore verdict = iota
	own
	adopt
	release
)

// A claimer is what the verdict on an object depends on, read once an owner.
type claimer struct {
	uid       types.UID
	namespace string
	deleting  bool
	selector  labels.Selector
	equal     object.Labels // all that the selector asks for, if it asks for nothing else
}

// equalities returns the labels that the selector asks for, or nil if it asks for
// anything else: looking them up takes three quarters of the time of asking it. A
// selector of the caller's own making may match by more than its requirements.
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

func newClaimer(owner metav1.Object, sel labels.Selector) (claimer, error) {
	if object.IsNil(owner) {
		return claimer{}, errors.New("selector: owner is nil")
	}
	if owner.GetUID() == "" {
		return claimer{}, fmt.Errorf("selector: owner %q: UID is empty", object.Name(owner))
	}
	if err := usable(sel); err != nil {
		return claimer{}, fmt.Errorf("selector: owner %q: %w", object.Name(owner), err)
	}
	return claimer{
		uid:       owner.GetUID(),
		namespace: owner.GetNamespace(),
		deleting:  owner.GetDeletionTimestamp() != nil,
		selector:  sel,
		equal:     equalities(sel),
	}, nil
}

func (c *claimer) judge(obj metav1.Object) verdict {
	ref := metav1.GetControllerOfNoCopy(obj)
	switch {
	case ref == nil:
		return c.judgeOrphan(obj)
	case ref.UID != c.uid:
		return ignore
	case c.matches(obj):
		return own
	case c.deleting:
		return ignore
	default:
		return release
	}
}

func (c *claimer) judgeOrphan(obj metav1.Object) verdict {
	switch {
	case c.deleting, obj.GetDeletionTimestamp() != nil:
		return ignore
	case !reaches(c.namespace, obj):
		return ignore
	case !c.matches(obj):
		return ignore
	default:
		return adopt
	}
}

func (c *claimer) matches(obj metav1.Object) bool {
	if c.equal != nil {
		return c.equal.In(obj.GetLabels())
	}
	return c.selector.Matches(labels.Set(obj.GetLabels()))
}

// reaches reports whether an owner of the namespace may adopt obj: a
// cluster-scoped owner, one without a namespace, may adopt anywhere (C7).
func reaches(namespace string, obj metav1.Object) bool {
	return namespace == "" || namespace == obj.GetNamespace()
}

// Owners returns the owners that an orphan concerns: those that would adopt it
// and must be looked at when it appears, in the order of the input (V4). More
// than one means that their selectors overlap: the first to adopt wins, and the
// caller may want to report it.
//
// A child that is nil, that has no labels or that has a controller already
// concerns nobody: nil. Owners that are nil, of another namespace, or whose
// selector is refused by sel, nil or empty are passed over (V5, A9); owners being
// deleted are not. ForReplicaSet and ForReplicationController serve as sel; a nil
// sel finds nobody.
func Owners[O Object](child metav1.Object, owners []O, sel func(O) (labels.Selector, error)) []O {
	if sel == nil || object.IsNil(child) || len(child.GetLabels()) == 0 || metav1.GetControllerOfNoCopy(child) != nil {
		return nil
	}
	var found []O
	var zero O
	for _, owner := range owners {
		if owner == zero || object.IsNil(owner) || !reaches(owner.GetNamespace(), child) {
			continue
		}
		s, err := sel(owner)
		if err != nil || usable(s) != nil {
			continue
		}
		if s.Matches(labels.Set(child.GetLabels())) {
			found = append(found, owner)
		}
	}
	return found
}
