// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// DefaultBurstReplicas is how many children one plan creates or deletes at most if
// Spec.BurstReplicas is 0.
const DefaultBurstReplicas = 500

// A PodSpec is a Spec for pods.
type PodSpec = Spec[*corev1.Pod]

// A Spec says what is wanted. It has everything that a decision needs, except the children.
// ReplicaSetSpec and ReplicationControllerSpec make one. For a kind of your own, fill it in by
// hand. No function changes a Spec. Goroutines may share it if its functions allow that.
type Spec[T metav1.Object] struct {
	// Owner is the object that owns the children. Required. Its UID decides which children it has.
	// If it has no UID, as with fake clients, its group, kind and name decide. If it has a
	// deletionTimestamp, nothing is adopted, released, created or deleted, unless it has the
	// Finalizer.
	Owner metav1.Object
	// Finalizer is a finalizer that keeps the owner until its children are gone. While an owner
	// that is being deleted has it, no child is wanted. So all children are deleted with the rules,
	// order and limits of any other plan. None is adopted or released. An owner that also has the
	// finalizer "orphan" keeps its children. Add the finalizer to the owner yourself, and remove it
	// when the owner no longer has children. While such an owner is Paused or its spec is refused,
	// its children stay, and so does the owner. "" means none.
	//
	// With foreground deletion, which is the finalizer "foregroundDeletion", the garbage collector
	// also deletes the children, in an order of its own.
	Finalizer string
	// Kind is the owner's kind, for the owner references of adopted and created children. Version
	// and Kind are required. Group is empty for the core group. A Kind that differs from the
	// owner's own TypeMeta is refused.
	Kind schema.GroupVersionKind
	// BaseName is the beginning of the names of new children, before the "-". "" means the owner's
	// name. If no name can begin with it, it is refused.
	BaseName string
	// Paused says that nothing is created or deleted now. A plan has claims, and is Blocked by
	// Paused. A Controller still writes the status.
	Paused bool
	// Replicas is how many active children are wanted. Negative is refused.
	Replicas int32
	// Slots returns the name of slot i, counted from 0. Set it if each child has its own place,
	// such as an ordinal, a zone or a node. The slots below Replicas are wanted, and their children
	// have their names. The function Ordinals makes such a function. A name that is not legal, such
	// as "", the same name for two slots, and more than MaxSlots are refused. A plan calls Slots in
	// order, for as many slots as it needs. So it refuses such a name only when it needs the slot.
	// If Slots is nil, all children are alike.
	//
	// A plan creates a child in each wanted slot that has none, in the order of the slots. If
	// another object in the list has the name, such as a child that is being deleted, the slot
	// waits until that object is gone. Orphans are adopted only in an empty slot.
	//
	// An active child in no wanted slot must go, unless MustStay keeps it. These children are
	// deleted before all others. The longest name goes first, and of those the last in the
	// alphabet, so web-10 goes before web-9. While a wanted slot has no child, only as many of them
	// are deleted as there are children above Replicas. For example, with web-0, web-2, web-3,
	// web-4 and 3 wanted, web-4 is deleted, web-1 is created, then web-3 is deleted. So a quota
	// must have room for one more than Replicas. Two active children with one name, which a
	// cluster-scoped owner may have, are an error.
	//
	// With Slots, Names is not called and PendingAdoptions is ignored. Put the names of such
	// orphans into Taken.
	Slots func(i int) string
	// Taken are names that no new child can have now, in addition to those of the objects in the
	// list. Another object has these names, or may still get them.
	Taken []string
	// Selector says which children may be owned. It is refused if it is nil, matches everything or
	// can match nothing.
	Selector labels.Selector
	// Template is the template of new pods if New is nil. Its labels must match Selector. It is
	// ignored for children that are not pods.
	Template *corev1.PodTemplateSpec
	// New returns a new child, another one with each call. name is the name that the child will
	// have, such as its slot. It is "" if the API server chooses the name. If there is a name, the
	// child must have that name or none. New sets the labels, which must match Selector, and the
	// content of the child. Scale.New sets the rest. If New is nil, pods are made from Template.
	// For other children, it is an error if one must be created.
	New func(name string) (T, error)
	// MinReadySeconds is for how many seconds a child must be ready to count as available. It
	// changes only plans with MaxUnavailable or MaxSurge. A negative number is refused.
	MinReadySeconds int32
	// BurstReplicas is how many children one plan creates, deletes or discards at most. Later plans
	// do the rest. 0 means DefaultBurstReplicas. A negative number is refused.
	BurstReplicas int
	// MaxDeletions is how many children one plan may delete, if that is less than BurstReplicas. It
	// is no disruption budget, because the next plan may delete more before other children are
	// ready. nil means that only BurstReplicas counts. 0 means that nothing may be deleted now. A
	// negative number is refused.
	MaxDeletions *int
	// MaxUnavailable and MaxSurge bound a rollout, which replaces the children that must go because
	// of Rules.MustGo or Rules.ReadyWithin. During a rollout, no plan brings the number of
	// available children below Replicas minus MaxUnavailable, or the number of all children above
	// Replicas plus MaxSurge. Each is a number or a percentage of Replicas. As in a Deployment, the
	// percentage of MaxUnavailable is rounded down and that of MaxSurge up. If both become 0, one
	// child may be unavailable.
	//
	// Meanwhile a plan may create and delete. Children that are not ready or not available are
	// deleted first, except with Slots, where the order of the rules decides. No available child is
	// deleted while too few are available. No child is created that a later plan of the same
	// rollout deletes. A child in no wanted slot must go, too.
	//
	// If only one of them is set, the other is 0. If both are nil, as many as must go are deleted
	// at once. Negative numbers, a MaxUnavailable above 100%, and a MaxSurge other than 0 with
	// Slots are refused. If both are 0 and a child that must go could never be deleted, the Spec is
	// refused too.
	MaxUnavailable, MaxSurge *intstr.IntOrString
	// PendingAdoptions is the number of orphans that may become the owner's, because their adoption
	// is not decided yet. That many fewer children are created, and none is deleted because of
	// them. Do not pass these orphans to Manage, because it would plan to adopt them. A negative
	// number is refused.
	PendingAdoptions int
	// CreationsInFlight are names whose creation had no answer and may still take effect. They are
	// in the order in which a plan sends them again. ledger.InFlight returns them. A plan sends a
	// name again if it begins with the prefix of Names and no object has it. Each of the other
	// names counts as one more child. With Slots, these names do not count, because a child with
	// such a name would fill its own slot. If another object has the name, the server refuses the
	// creation, so put the name into Taken instead. nil means that nothing is in flight.
	CreationsInFlight []string
	// DeletionsInFlight are the UIDs of children whose deletion had no answer and may still take
	// effect. For creations, these children count as there. For deletions, they count as gone. If a
	// plan deletes children, it sends these deletions again first. A UID that no child has is
	// ignored. For a child without a UID, as with fake clients, write its namespace, "/" and its
	// name. nil means that nothing is in flight.
	DeletionsInFlight []types.UID
	// Rules say what the state of a child means, and which child is deleted first.
	Rules Rules[T]
	// Related returns the children of the owner and of its siblings, such as the ReplicaSets of one
	// Deployment. The function Related finds them. In Kubernetes' order, the more of them are
	// active on a pod's node, the sooner that pod is deleted. If Related is nil or returns none, it
	// does not rank pods. Otherwise the owned children count too, and a child in both lists, by
	// UID, counts once. Related is called once in a plan that deletes children, and not in other
	// plans.
	Related func() []T
	// Names returns a name for a new child, which is the prefix and up to 5 more characters. The
	// prefix is BaseName or the owner's name, and "-", cut after 58 characters, so the name has at
	// most 63. Names is called again if an object in the list has the name, if it is in Taken, or
	// if Names returned it before for the same plan. A name that is not legal is an error. An owner
	// in a test with a fake client may itself have a name that is not legal. Then Names may return
	// any name that is not empty. If Names is nil, the API server chooses the names.
	Names func(prefix string) string
	// Now is the instant of the decision. The zero time is refused.
	Now time.Time
	// Pending and PendingFor are what expectations.Store.State returned for the owner. Call State
	// BEFORE you list the children. If Pending is Waiting, a plan has claims, but it creates and
	// deletes nothing.
	//
	// If Pending is Expired, a plan that would create or delete something is Blocked by ViewIsStale
	// and does nothing. So is a plan to which MaxDeletions or MustStay leave another number than
	// Replicas. A plan with nothing to do is not Blocked, but the number may be right by chance.
	// List live then too, unless the list shows all that Store.Get says is outstanding.
	Pending    expectations.State
	PendingFor time.Duration
}

// ReplicaSetSpec returns the Spec of a ReplicaSet. The caller must set Now, and may set Related,
// BurstReplicas, Names, Pending and PendingFor. Owner and Template point into rs.
//
// Differs from Kubernetes: nil replicas, and a nil, empty or invalid selector, are errors. No API
// server stores such a ReplicaSet, so its source is broken. Kubernetes panics, releases every pod,
// or adopts every orphan.
func ReplicaSetSpec(rs *appsv1.ReplicaSet) (PodSpec, error) {
	if rs == nil {
		return PodSpec{}, errors.New("replicas: replica set is nil")
	}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	sel, err := selector.ForReplicaSet(rs)
	if err != nil {
		return PodSpec{}, &RefusedError{Reason: InvalidSelector, Err: err}
	}
	if rs.Spec.Replicas == nil {
		return PodSpec{}, refuse(rs, kind, InvalidReplicas, "spec.replicas is nil")
	}
	return PodSpec{
		Owner:           rs,
		Kind:            kind,
		Replicas:        *rs.Spec.Replicas,
		Selector:        sel,
		Template:        &rs.Spec.Template,
		MinReadySeconds: rs.Spec.MinReadySeconds,
	}, nil
}

// ReplicationControllerSpec returns the Spec of a ReplicationController, as
// ReplicaSetSpec does for a ReplicaSet. A nil template is an error too.
func ReplicationControllerSpec(rc *corev1.ReplicationController) (PodSpec, error) {
	if rc == nil {
		return PodSpec{}, errors.New("replicas: replication controller is nil")
	}
	kind := corev1.SchemeGroupVersion.WithKind("ReplicationController")
	sel, err := selector.ForReplicationController(rc)
	if err != nil {
		return PodSpec{}, &RefusedError{Reason: InvalidSelector, Err: err}
	}
	if rc.Spec.Replicas == nil {
		return PodSpec{}, refuse(rc, kind, InvalidReplicas, "spec.replicas is nil")
	}
	if rc.Spec.Template == nil {
		return PodSpec{}, refuse(rc, kind, InvalidTemplate, "spec.template is nil")
	}
	return PodSpec{
		Owner:           rc,
		Kind:            kind,
		Replicas:        *rc.Spec.Replicas,
		Selector:        sel,
		Template:        rc.Spec.Template,
		MinReadySeconds: rc.Spec.MinReadySeconds,
	}, nil
}

func (s *Spec[T]) failure(format string, args ...any) error {
	return failure(s.Owner, s.Kind, format, args...)
}

// checkOwner refuses owners and kinds that make any decision dangerous.
func (s *Spec[T]) checkOwner() error {
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

// otherKind returns the group and kind in the owner's TypeMeta if they are not those of the spec.
// Objects from typed caches have none there.
func (s *Spec[T]) otherKind() string {
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

// checkScale refuses a spec that ScaleTo cannot use.
func (s *Spec[T]) checkScale() error {
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
	case s.PendingAdoptions < 0:
		return s.failure("held places %d is negative", s.PendingAdoptions)
	case s.BaseName != "" && checkName(s.BaseName) != nil:
		return s.failure("base name %q: %w", s.BaseName, checkName(s.BaseName))
	case s.Now.IsZero():
		return s.failure("now is the zero time")
	}
	if err := s.checkReadyWithin(); err != nil {
		return err
	}
	return s.checkRollout()
}

func (s *Spec[T]) checkReadyWithin() error {
	within, least := s.Rules.ReadyWithin, time.Duration(s.MinReadySeconds)*time.Second
	if within == 0 {
		return nil
	}
	switch complete := s.Rules.Complete(); {
	case within < 0:
		return refuse(s.Owner, s.Kind, InvalidReplicas, "readyWithin %v is negative", within)
	case within < least:
		return refuse(s.Owner, s.Kind, InvalidReplicas, "readyWithin %v is below minReadySeconds, which is %v", within, least)
	case complete.Ready == nil:
		return s.failure("readyWithin is %v, and Rules.Ready is nil: no %T is ever ready", within, *new(T))
	case complete.NotReadySince == nil:
		return s.failure("readyWithin is %v, and Rules.NotReadySince is nil", within)
	}
	return nil
}

// begin refuses a spec that ScaleTo cannot use. It sets Replicas and Rules to what the instant and
// the owner's deletion make of them.
func (s *Spec[T]) begin() error {
	if err := s.checkScale(); err != nil {
		return err
	}
	s.Replicas, s.Rules = s.Wanted(), s.Rules.at(s.Now)
	return nil
}

// Wanted returns how many children are wanted. That is Replicas, or 0 if the owner is being deleted
// and has the Finalizer.
func (s *Spec[T]) Wanted() int32 {
	if s.Draining() {
		return 0
	}
	return s.Replicas
}

// Draining reports whether the owner is being deleted and kept until its children are gone.
func (s *Spec[T]) Draining() bool {
	if s.Finalizer == "" || object.IsNil(s.Owner) || s.Owner.GetDeletionTimestamp() == nil {
		return false
	}
	has := s.Owner.GetFinalizers()
	return slices.Contains(has, s.Finalizer) && !slices.Contains(has, metav1.FinalizerOrphanDependents)
}

// check refuses a spec that Manage cannot use.
func (s *Spec[T]) check() error {
	if err := s.begin(); err != nil {
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

// checkCreate refuses a spec from which no child can be created.
func (s *Spec[T]) checkCreate() error {
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

func (s *Spec[T]) checkSelector() error {
	if err := object.CheckSelector(s.Selector); err != nil {
		return refuse(s.Owner, s.Kind, InvalidSelector, "%w", err)
	}
	return nil
}

func (s *Spec[T]) checkTemplate() error {
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

// checkName refuses a name that no API server accepts.
func checkName(name string) error {
	if faults := validation.NameIsDNSSubdomain(name, false); len(faults) > 0 {
		return fmt.Errorf("%s", strings.Join(faults, "; "))
	}
	return nil
}

// blocked says why nothing may be created or deleted, regardless of the plan. The owner's deletion
// comes first, because it is final.
func (s *Spec[T]) blocked() Blocked {
	switch {
	case s.Owner.GetDeletionTimestamp() != nil && !s.Draining():
		return Blocked{Reason: OwnerDeleted}
	case s.Paused:
		return Blocked{Reason: Paused}
	case s.Pending == expectations.Waiting:
		return Blocked{Reason: ExpectationsPending, Until: s.Now.Add(s.PendingFor)}
	}
	return Blocked{}
}
