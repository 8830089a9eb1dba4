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
// are finished or being deleted are dropped (Y6), and so are pods of another
// namespace than the owner's, unless the owner has none. The order of pods
// never matters: the plan is in the order of their UIDs. The plan points to the
// pods that were passed in.
//
// An error names the object and the field, and comes with the zero Plan. One
// that the owner's own spec causes is a *RefusedError. A nil pod, and two pods
// of one UID, are errors too: such a list says nothing about how many there
// are.
//
// Differs from Kubernetes: negative replicas, selectors that match everything
// or nothing, and a template that the selector does not match are refused
// instead of panicking, adopting everything, or creating for ever.
func Manage(pods []*corev1.Pod, spec Spec) (Plan, error) {
	if err := spec.check(); err != nil {
		return Plan{}, err
	}
	active, ordered, err := spec.candidates(pods)
	if err != nil {
		return Plan{}, err
	}
	claims, err := selector.Claim(spec.Owner, spec.Selector, active)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Claims: inOrder(claims, ordered), Blocked: spec.blocked()}
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
// is Waiting, or whose owner is being deleted, gives the zero Scale (Y10).
//
// Spec.Selector and Spec.Template are looked at only where pods must be
// created. Errors are those of Manage.
func ScaleTo(owned []*corev1.Pod, spec Spec) (Scale, error) {
	if err := spec.checkScale(); err != nil {
		return Scale{}, err
	}
	active, _, err := spec.candidates(owned)
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
		victims := podrank.Select(owned, s.related(owned), n, s.Now)
		return Scale{Delete: victims, Deferred: surplus - n}, nil
	case surplus < 0:
		return s.create(-surplus)
	}
	return Scale{}, nil
}

func (s *Spec) create(missing int) (Scale, error) {
	newPod, err := PodFromTemplate(s.Template, s.Owner, s.Kind)
	if err != nil {
		return Scale{}, err
	}
	n := min(missing, s.burst())
	return Scale{Create: n, NewPod: newPod, Deferred: missing - n}, nil
}

// related returns the pods whose nodes count for co-location: nil for none
// (L2), else the related and the owned ones, each once.
func (s *Spec) related(owned []*corev1.Pod) []*corev1.Pod {
	if s.Related == nil {
		return nil
	}
	others := beside(s.Related, owned)
	if len(others) == 0 {
		return owned
	}
	all, _ := byUID(slices.Concat(owned, others))
	return slices.CompactFunc(all, samePod)
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

// candidates returns the active pods of the owner's namespace, in the order of
// pods, which may be that of memory, and in the order of their UIDs, on which
// nothing that the caller happens to do has an influence.
func (s *Spec) candidates(pods []*corev1.Pod) (active, ordered []*corev1.Pod, err error) {
	namespace := s.Owner.GetNamespace()
	active = make([]*corev1.Pod, 0, len(pods))
	for i, p := range pods {
		if p == nil {
			return nil, nil, s.failure("pods[%d] is nil", i)
		}
		if (namespace == "" || namespace == p.Namespace) && pod.IsActive(p) {
			active = append(active, p)
		}
	}
	ordered, twice := byUID(active)
	if twice != nil {
		return nil, nil, s.failure("pod %q (%s) is listed twice", object.Name(twice), twice.UID)
	}
	return active, ordered, nil
}
