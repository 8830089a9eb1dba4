package replicas

import (
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// DefaultBurstReplicas is how many children one plan creates or deletes at most
// if Spec.BurstReplicas is 0.
const DefaultBurstReplicas = 500

// A Spec is a SpecOf for pods.
type Spec = SpecOf[*corev1.Pod]

// A SpecOf is what is wanted and by whom: everything that a decision needs beside
// the children. ReplicaSetSpec and ReplicationControllerSpec make it from those
// two kinds; for a kind of your own, fill it in by hand. It is read only and may
// be shared between goroutines if its functions may.
type SpecOf[T metav1.Object] struct {
	// Owner is the object that owns the children. Its UID says which are its own,
	// its deletionTimestamp stops everything but status. Without a UID, as with
	// fake clients, its group, kind and name say it. Required.
	Owner metav1.Object
	// Kind goes into the owner reference of adopted and created children. Version
	// and Kind are required; the core group is empty.
	Kind schema.GroupVersionKind
	// Replicas is how many active children are wanted. Negative is refused.
	Replicas int32
	// Selector says which children may be owned. One that is nil, matches
	// everything or can match nothing is refused.
	Selector labels.Selector
	// Template is what new pods are made from, unless New is set. Its labels must
	// match Selector. It is ignored for children that are not pods.
	Template *corev1.PodTemplateSpec
	// New makes a new child, another one with each call: labels that match
	// Selector, and what the child is to be. ScaleOf.New calls it once for each
	// creation and fills in the rest. nil: pods are made from Template; other
	// children cannot be created, which is an error if one is missing.
	New func() (T, error)
	// MinReadySeconds is how long a child must be ready to count as available, in
	// seconds. It changes no plan; negative is refused.
	MinReadySeconds int32
	// BurstReplicas caps the creations, and likewise the deletions, of one
	// plan; the rest is for later plans. 0 means DefaultBurstReplicas;
	// negative is refused.
	BurstReplicas int
	// MaxDeletions caps the deletions of one plan further, as a disruption budget
	// does. nil: no further; 0: none now. Negative is refused.
	MaxDeletions *int
	// HeldPlaces counts children that are not known to be the owner's, but may
	// become so: orphans whose adoption nobody has decided. None is created in
	// their stead, and none is deleted because of them. Do not pass them to Manage
	// as well: they would be adopted. Negative is refused.
	HeldPlaces int
	// Rules say what the state of a child means, and who is deleted first.
	Rules Rules[T]
	// Related are the children of the owner's siblings, such as the ReplicaSets of
	// one Deployment, and of the owner itself: the more active pods share a
	// pod's node, the sooner that pod goes. If there are any, the owned children
	// are counted too, and one in both, by UID, counts once; if there are
	// none, nothing is ranked by co-location.
	Related []T
	// Names returns the name of the next new child: the prefix and at most 5
	// characters more. The prefix is the owner's name and "-", cut after 58
	// characters, so a name has at most 63. If a child has that name already, or
	// Names has returned it before for the same plan, Names is called again. A name
	// that no object may have is an error, unless the owner's own name is not legal
	// either, as in tests with fake clients. nil: the API server chooses names by
	// their generateName.
	Names func(prefix string) string
	// Now is the instant of the decision. The zero time is refused.
	Now time.Time
	// Pending is what the record of expectations says about the list of children,
	// and PendingFor for how long: what expectations.Store.State returns. Ask it
	// BEFORE listing. While it is Waiting, claims are planned, and nothing is
	// created or deleted. If it is Expired, a plan that would create or delete
	// something does not, and says ViewIsOld.
	Pending    expectations.State
	PendingFor time.Duration
}

// ReplicaSetSpec returns the Spec of a ReplicaSet, with Now, Related,
// BurstReplicas, Names and Pending left to the caller. Owner and Template point into
// rs.
//
// Differs from Kubernetes: nil replicas, and a nil, empty or invalid selector,
// are errors. The API server stores none of them, so they mean that the source
// is broken; upstream panics, releases every pod, or adopts every orphan.
func ReplicaSetSpec(rs *appsv1.ReplicaSet) (Spec, error) {
	if rs == nil {
		return Spec{}, errors.New("replicas: replica set is nil")
	}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	sel, err := selector.ForReplicaSet(rs)
	if err != nil {
		return Spec{}, &RefusedError{Reason: InvalidSelector, Err: err}
	}
	if rs.Spec.Replicas == nil {
		return Spec{}, refuse(rs, kind, InvalidReplicas, "spec.replicas is nil")
	}
	return Spec{
		Owner:           rs,
		Kind:            kind,
		Replicas:        *rs.Spec.Replicas,
		Selector:        sel,
		Template:        &rs.Spec.Template,
		MinReadySeconds: rs.Spec.MinReadySeconds,
	}, nil
}

// ReplicationControllerSpec returns the Spec of a ReplicationController; see
// ReplicaSetSpec.
func ReplicationControllerSpec(rc *corev1.ReplicationController) (Spec, error) {
	if rc == nil {
		return Spec{}, errors.New("replicas: replication controller is nil")
	}
	kind := corev1.SchemeGroupVersion.WithKind("ReplicationController")
	sel, err := selector.ForReplicationController(rc)
	if err != nil {
		return Spec{}, &RefusedError{Reason: InvalidSelector, Err: err}
	}
	if rc.Spec.Replicas == nil {
		return Spec{}, refuse(rc, kind, InvalidReplicas, "spec.replicas is nil")
	}
	if rc.Spec.Template == nil {
		return Spec{}, refuse(rc, kind, InvalidTemplate, "spec.template is nil")
	}
	return Spec{
		Owner:           rc,
		Kind:            kind,
		Replicas:        *rc.Spec.Replicas,
		Selector:        sel,
		Template:        rc.Spec.Template,
		MinReadySeconds: rc.Spec.MinReadySeconds,
	}, nil
}

func (s *SpecOf[T]) failure(format string, args ...any) error {
	return failure(s.Owner, s.Kind, format, args...)
}

// checkOwner refuses what would make any decision dangerous.
func (s *SpecOf[T]) checkOwner() error {
	switch {
	case object.IsNil(s.Owner):
		return errors.New("replicas: owner is nil")
	case s.Kind.Kind == "" || s.Kind.Version == "":
		return fmt.Errorf("replicas: owner %q: kind %q is incomplete", object.Name(s.Owner), s.Kind)
	case s.otherKind() != "":
		return fmt.Errorf("replicas: owner %q: kind %q is not the owner's own, which is %s", object.Name(s.Owner), s.Kind, s.otherKind())
	case s.Owner.GetUID() == "" && s.Owner.GetName() == "":
		return s.failure("metadata.uid and metadata.name are empty")
	}
	return nil
}

// otherKind is the group and kind that the owner says it has, if it does, as
// objects from typed caches do not, and if it is not that of the spec.
func (s *SpecOf[T]) otherKind() string {
	owner, ok := s.Owner.(runtime.Object)
	if !ok {
		return ""
	}
	kind := owner.GetObjectKind().GroupVersionKind().GroupKind()
	if kind.Kind == "" || kind == s.Kind.GroupKind() {
		return ""
	}
	return kind.String()
}

// checkScale refuses what ScaleTo can not act on.
func (s *SpecOf[T]) checkScale() error {
	if err := s.checkOwner(); err != nil {
		return err
	}
	switch {
	case s.Replicas < 0:
		return refuse(s.Owner, s.Kind, InvalidReplicas, "replicas %d is negative", s.Replicas)
	case s.BurstReplicas < 0:
		return s.failure("burst replicas %d is negative", s.BurstReplicas)
	case s.MaxDeletions != nil && *s.MaxDeletions < 0:
		return s.failure("max deletions %d is negative", *s.MaxDeletions)
	case s.HeldPlaces < 0:
		return s.failure("held places %d is negative", s.HeldPlaces)
	case s.Now.IsZero():
		return s.failure("now is the zero time")
	}
	return nil
}

// check refuses what Manage can not act on.
func (s *SpecOf[T]) check() error {
	if err := s.checkScale(); err != nil {
		return err
	}
	if s.MinReadySeconds < 0 {
		return refuse(s.Owner, s.Kind, InvalidReplicas, "minReadySeconds %d is negative", s.MinReadySeconds)
	}
	if err := s.checkSelector(); err != nil {
		return err
	}
	if s.New == nil && rulesOfPods[T]() != nil {
		return s.checkTemplate()
	}
	return nil
}

// checkCreate refuses what no child can be created from.
func (s *SpecOf[T]) checkCreate() error {
	if err := s.checkSelector(); err != nil {
		return err
	}
	switch {
	case s.New != nil:
		return nil
	case rulesOfPods[T]() != nil:
		return s.checkTemplate()
	}
	return s.failure("New is nil, and %T is no pod", *new(T))
}

func (s *SpecOf[T]) checkSelector() error {
	if err := object.CheckSelector(s.Selector); err != nil {
		return refuse(s.Owner, s.Kind, InvalidSelector, "%w", err)
	}
	return nil
}

func (s *SpecOf[T]) checkTemplate() error {
	switch {
	case s.Template == nil:
		return refuse(s.Owner, s.Kind, InvalidTemplate, "template is nil")
	case len(s.Template.Labels) == 0:
		return refuse(s.Owner, s.Kind, InvalidTemplate, "template has no labels")
	case !s.Selector.Matches(labels.Set(s.Template.Labels)):
		return refuse(s.Owner, s.Kind, InvalidTemplate, "template labels %q do not match selector %q",
			labels.Set(s.Template.Labels), s.Selector)
	}
	return nil
}

// claimer sorts children for the owner.
func (s *SpecOf[T]) claimer() selector.Claimer[T] {
	return selector.Claimer[T]{Owner: s.Owner, Kind: s.Kind, Selector: s.Selector}
}
