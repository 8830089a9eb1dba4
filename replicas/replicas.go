package replicas

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// Manage decides what to do so that the owner has the children that spec asks for:
// which to adopt and to release, and how many to create or which to delete. It
// makes no call and changes nothing; PlanOf says how to carry the plan out.
// Children are pods or objects of any other type.
//
// objs are the candidates: all objects of that type in the owner's namespace, or at
// least the owner's own and those without a controller. Manage ignores objects that
// are not active and objects in another namespace than the owner's; a
// cluster-scoped owner has children in any namespace. The lists of the plan are in
// the order of objs and point to the same objects. Which of them are deleted does
// not depend on that order.
//
// With an error comes the zero plan. The error names the owner and the field; if
// the owner's own spec is wrong, it is a *RefusedError. A nil object is an error.
// So is a child that is listed twice, unless the plan ignores it: it is not known
// then how many there are. Two entries are the same child if their UIDs are equal;
// entries without a UID, as fake clients make them, are different children.
//
// Differs from Kubernetes: negative replicas, a selector that matches everything or
// nothing, and a template that the selector does not match are refused. Kubernetes
// panics, adopts every orphan, releases every pod, or creates pods for ever.
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

// ScaleTo is the second half of Manage: given the children that the owner has, it
// decides how many to create or which to delete. Call it if a claim of a plan
// failed, before you create or delete anything, and use its result in place of
// Plan.Scale. Inactive children are ignored; who owns the others is not checked. If
// Manage would say that the plan is Blocked, ScaleTo returns the zero Scale.
//
// Spec.Selector, Spec.New and Spec.Template are needed only if children must be
// created. Only the names in owned count as taken. Errors are those of Manage.
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
