package replicas

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// Manage decides what to do about the children for the owner to have what spec
// asks for: which to adopt and release, and then how many to create or which to
// delete. It calls nothing and changes nothing; see PlanOf for what is left to
// do. Children are pods or any other objects.
//
// The objs are those that the owner may have something to do with: its own and
// the orphans of its namespace, or simply all of the namespace. Those that are
// not active are dropped, and so are those of another namespace than the owner's,
// unless the owner has none. The lists of the plan are in the order of objs and
// point to what was passed in. Who is deleted does not depend on that order.
//
// An error names the object and the field, and comes with the zero plan. One
// that the owner's own spec causes is a *RefusedError. A nil child is an error,
// and so is a child that is listed twice, if the owner has it, would adopt it or
// would release it: the list does not say then how many there are. Two entries
// are the same child if their UIDs are equal; without UIDs, as with fake clients,
// every entry is a child of its own.
//
// Differs from Kubernetes: negative replicas, selectors that match everything
// or nothing, and a template that the selector does not match are refused
// instead of panicking, adopting everything, or creating for ever.
func Manage[T metav1.Object](objs []T, spec SpecOf[T]) (PlanOf[T], error) {
	if err := spec.check(); err != nil {
		return PlanOf[T]{}, err
	}
	claims, err := spec.claims(objs)
	if err != nil {
		return PlanOf[T]{}, err
	}
	owned := claims.Owned
	if len(claims.Adopt) > 0 {
		owned = slices.Concat(owned, claims.Adopt)
	}
	scale, blocked, err := spec.scale(owned, objs)
	if err != nil {
		return PlanOf[T]{}, err
	}
	return PlanOf[T]{Claims: claims, Scale: scale, Blocked: blocked}, nil
}

// ScaleTo is the second half of Manage alone: given the children that are really
// owned, it decides how many to create or which to delete. Call it in place of
// Plan.Scale whenever a claim of the plan failed, before anything is created or
// deleted. Inactive children are dropped; ownership is not looked at. Where Manage
// would say that the plan is Blocked, it returns the zero Scale.
//
// Spec.Selector, Spec.New and Spec.Template are looked at only if children must
// be created, and of taken names only those in owned are known. Errors are those
// of Manage.
func ScaleTo[T metav1.Object](owned []T, spec SpecOf[T]) (ScaleOf[T], error) {
	if err := spec.checkScale(); err != nil {
		return ScaleOf[T]{}, err
	}
	active, err := spec.active(owned)
	if err != nil {
		return ScaleOf[T]{}, err
	}
	scale, _, err := spec.scale(active, owned)
	return scale, err
}

// active returns the children that count as replicas, each of which must be
// listed once.
func (s *SpecOf[T]) active(owned []T) ([]T, error) {
	active, uids := make([]T, 0, len(owned)), make([]types.UID, 0, len(owned))
	err := s.candidates(owned, func(obj T) {
		active, uids = append(active, obj), append(uids, obj.GetUID())
	})
	if err == nil {
		err = s.once(owned, uids)
	}
	return active, err
}

// claims sorts the candidates. What is ignored may be listed twice: it is for
// others to stumble over.
func (s *SpecOf[T]) claims(objs []T) (selector.Claims[T], error) {
	none := selector.Claims[T]{}
	judge, err := s.claimer().Judge()
	if err != nil {
		return none, err
	}
	expected := min(len(objs), int(s.Replicas))
	claims, uids := selector.Claims[T]{Owned: make([]T, 0, expected)}, make([]types.UID, 0, expected)
	err = s.candidates(objs, func(obj T) {
		verdict := judge(obj)
		claims.Add(obj, verdict)
		if verdict != selector.Ignore {
			uids = append(uids, obj.GetUID())
		}
	})
	if err == nil {
		err = s.once(objs, uids)
	}
	if err != nil {
		return none, err
	}
	if len(claims.Owned) == 0 {
		claims.Owned = nil
	}
	return claims, nil
}

// candidates calls f for the active children of the owner's namespace, one after
// the other: reading them is most of the work, and is done once.
func (s *SpecOf[T]) candidates(objs []T, f func(T)) error {
	namespace, isNil, isActive := s.Owner.GetNamespace(), object.NilOf[T](), s.Rules.active()
	for i, obj := range objs {
		if isNil(obj) {
			return s.failure("objs[%d] is nil", i)
		}
		if (namespace == "" || namespace == obj.GetNamespace()) && isActive(obj) {
			f(obj)
		}
	}
	return nil
}

// once returns an error if one of objs is among the UIDs twice.
func (s *SpecOf[T]) once(objs []T, uids []types.UID) error {
	seen := newSightings(uids)
	for i, uid := range uids {
		if !seen.first(i) {
			twice := objs[slices.IndexFunc(objs, func(obj T) bool { return obj.GetUID() == uid })]
			return s.failure("child %q (%s) is listed twice", object.Name(twice), uid)
		}
	}
	return nil
}
