package replicas

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/selector"
)

// Manage decides what to do about the pods for the owner to have what spec
// asks for: which pods to adopt and release, and then how many to create or
// which to delete. It calls nothing and changes nothing; see Plan for what is
// left to do.
//
// The pods are those that the owner may have something to do with: its own and
// the orphans of its namespace, or simply all pods of the namespace. Pods that
// are finished or being deleted are dropped, and so are pods of another
// namespace than the owner's, unless the owner has none. The order of pods
// never matters: the plan is in the order of their UIDs. The plan points to the
// pods that were passed in.
//
// An error names the object and the field, and comes with the zero Plan. One
// that the owner's own spec causes is a *RefusedError. A nil pod is an error,
// and so is a pod that is listed twice, if the owner has it, would adopt it or
// would release it: the list does not say then how many there are. Two entries
// are the same pod if their UIDs are equal; without UIDs, as with fake clients,
// every entry is a pod of its own.
//
// Differs from Kubernetes: negative replicas, selectors that match everything
// or nothing, and a template that the selector does not match are refused
// instead of panicking, adopting everything, or creating for ever.
func Manage(pods []*corev1.Pod, spec Spec) (Plan, error) {
	if err := spec.check(); err != nil {
		return Plan{}, err
	}
	claims, err := spec.claims(pods)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Claims: claims, Blocked: spec.blocked()}
	if plan.Blocked != "" {
		return plan, nil
	}
	owned := claims.Owned
	if len(claims.Adopt) > 0 {
		owned = slices.Concat(owned, claims.Adopt)
	}
	plan.Scale, err = spec.scale(owned)
	if err != nil {
		return Plan{}, err
	}
	return plan, nil
}

// ScaleTo is the second half of Manage alone: given the pods that are really
// owned, it decides how many to create or which to delete. Call it in place of
// Plan.Scale whenever a claim of the plan failed, before anything is created or
// deleted. Inactive pods are dropped; ownership is not looked at. A Spec that
// is Waiting, or whose owner is being deleted, gives the zero Scale.
//
// Spec.Selector and Spec.Template are looked at only where pods must be
// created. Errors are those of Manage.
func ScaleTo(owned []*corev1.Pod, spec Spec) (Scale, error) {
	if err := spec.checkScale(); err != nil {
		return Scale{}, err
	}
	active, err := spec.candidates(owned)
	if err == nil {
		_, err = spec.once(active)
	}
	if err != nil || spec.blocked() != "" {
		return Scale{}, err
	}
	if len(active) < int(spec.Replicas) {
		err = cmp.Or(spec.checkSelector(), spec.checkTemplate())
	}
	if err != nil {
		return Scale{}, err
	}
	return spec.scale(active)
}

// blocked says why nothing may be created or deleted, if so. Deletion of the
// owner comes first: it stays.
func (s *Spec) blocked() Reason {
	switch {
	case s.Owner.GetDeletionTimestamp() != nil:
		return OwnerDeleted
	case s.Waiting:
		return ExpectationsPending
	}
	return ""
}

// scale compares what is there with what is wanted. All of owned is active and
// listed once.
func (s *Spec) scale(owned []*corev1.Pod) (Scale, error) {
	surplus := len(owned) - int(s.Replicas)
	switch {
	case surplus > 0:
		n := min(surplus, s.burst())
		victims := podrank.Select(owned, n, podrank.PodOptions{Now: s.Now, Related: s.related(owned), Order: s.Order})
		return Scale{Delete: victims, Deferred: surplus - n}, nil
	case surplus < 0:
		return s.create(-surplus)
	}
	return Scale{}, nil
}

func (s *Spec) create(missing int) (Scale, error) {
	prototype, err := PodFromTemplate(s.Template, s.Owner, s.Kind)
	if err != nil {
		return Scale{}, err
	}
	n := min(missing, s.burst())
	return Scale{Create: n, Prototype: prototype, Deferred: missing - n}, nil
}

// related returns the pods whose nodes count for co-location: nil for none
// (L2), else the related and the owned ones, each once.
func (s *Spec) related(owned []*corev1.Pod) []*corev1.Pod {
	if len(s.Related) == 0 {
		return nil
	}
	others := beside(s.Related, owned)
	if len(others) == 0 {
		return owned
	}
	all, _ := byUID(slices.Concat(owned, others))
	return slices.CompactFunc(all, func(p, q *corev1.Pod) bool { return object.Same(p, q) })
}

// beside returns the related pods that are not in owned themselves: none, as a
// rule, where both lists come from one cache. What is left may still be other
// views of owned pods.
func beside(related, owned []*corev1.Pod) []*corev1.Pod {
	if slices.Equal(related, owned) {
		return nil
	}
	known := make(map[*corev1.Pod]struct{}, len(owned)+1)
	known[nil] = struct{}{}
	for _, p := range owned {
		known[p] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(related), func(p *corev1.Pod) bool {
		_, ok := known[p]
		return ok
	})
}

// claims sorts the candidates among the pods, each list in the order of UIDs: on
// that nothing that the caller happens to do has an influence. What is ignored
// may be listed twice: it is for others to stumble over.
func (s *Spec) claims(pods []*corev1.Pod) (selector.Claims[*corev1.Pod], error) {
	var none selector.Claims[*corev1.Pod]
	active, err := s.candidates(pods)
	if err != nil {
		return none, err
	}
	claims, err := s.claimer().Plan(active)
	if err != nil {
		return none, err
	}
	concerned := claims.Owned
	if len(claims.Adopt) > 0 || len(claims.Release) > 0 {
		concerned = slices.Concat(claims.Owned, claims.Adopt, claims.Release)
	}
	ordered, err := s.once(concerned)
	if err != nil {
		return none, err
	}
	return inOrder(claims, ordered), nil
}

// candidates returns the active pods of the owner's namespace, in the order of
// pods, which may be that of memory.
func (s *Spec) candidates(pods []*corev1.Pod) ([]*corev1.Pod, error) {
	namespace := s.Owner.GetNamespace()
	active := make([]*corev1.Pod, 0, len(pods))
	for i, p := range pods {
		if p == nil {
			return nil, s.failure("pods[%d] is nil", i)
		}
		if (namespace == "" || namespace == p.Namespace) && pod.IsActive(p) {
			active = append(active, p)
		}
	}
	return active, nil
}

// once returns the pods in the order of their UIDs, and an error if one is listed
// twice.
func (s *Spec) once(pods []*corev1.Pod) ([]*corev1.Pod, error) {
	ordered, twice := byUID(pods)
	if twice != nil {
		return nil, s.failure("pod %q (%s) is listed twice", object.Name(twice), twice.UID)
	}
	return ordered, nil
}
