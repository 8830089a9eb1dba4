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

// A Spec says what is wanted: everything that a decision needs besides the
// children. ReplicaSetSpec and ReplicationControllerSpec make one; for a kind of
// your own, fill it in by hand. No function changes it. It may be shared between
// goroutines if its functions may.
type Spec[T metav1.Object] struct {
	// Owner is the object that owns the children. Its UID decides which children it
	// has; if it has none, as with fake clients, its group, kind and name decide.
	// If it has a deletionTimestamp, nothing is adopted, released, created or
	// deleted, unless it has the Finalizer. Required.
	Owner metav1.Object
	// Finalizer is one of the owner that keeps it until its children are gone. While an owner
	// that is being deleted has it, no child is wanted, so that all are deleted by the rules,
	// in the order and with the limits of any other plan. None is adopted or released. An owner
	// that also has the finalizer "orphan" keeps its children. Put the finalizer on the owner
	// yourself, and take it off when it has no children any more. While such an owner is Paused
	// or its spec is refused, its children stay, and so does the owner. "" means none.
	//
	// With foreground deletion, which is the finalizer "foregroundDeletion", the garbage
	// collector deletes the children too, in an order of its own.
	Finalizer string
	// Kind is the owner's kind, for the owner references of adopted and created
	// children. Version and Kind are required; Group is empty for the core group. A
	// Kind that differs from what the owner's own TypeMeta says is refused.
	Kind schema.GroupVersionKind
	// BaseName is what the names of new children begin with, before the "-". "" means
	// the owner's name. It is refused if no name can begin so.
	BaseName string
	// Paused says that nothing is created or deleted now. A plan has claims, and is
	// Blocked by Paused. A Controller goes on writing the status.
	Paused bool
	// Replicas is how many active children are wanted. Negative is refused.
	Replicas int32
	// Slots returns the name of slot i, counted from 0, if each child has a place of its own,
	// such as an ordinal, a zone or a node. The slots below Replicas are wanted, and their
	// children have their names. The function Ordinals makes such a function. A name that is
	// not legal, such as "", the same name for two slots, and more than MaxSlots are refused.
	// A plan calls Slots for as many slots as it needs, in their order, so it may refuse such
	// a name only when its slot has its turn. If Slots is nil, all children are alike.
	//
	// A plan creates a child in each wanted slot that has none, in the order of the slots. If
	// another object in the list has the name, such as a child that is being deleted, the
	// slot waits until that object is gone. Orphans are adopted only in an empty slot.
	//
	// An active child in no wanted slot must go, unless MustStay keeps it. These children go
	// before all others, the longest name first and of those the last in the alphabet, so
	// web-10 goes before web-9. As long as a wanted slot is missing, only as many of them
	// go as there are children more than Replicas in all: with web-0, web-2, web-3 and web-4 there and 3
	// wanted, web-4 goes, then web-1 is created, then web-3 goes. So a quota must have room for
	// one more than Replicas. Two active children with one
	// name, which a cluster-scoped owner may have, are an error.
	//
	// With Slots, Names is not called and PendingAdoptions is ignored. Put the names of such
	// orphans into Taken.
	Slots func(i int) string
	// Taken are names that no new child can have now, in addition to those of the objects in
	// the list. Another object has them, or may still get them.
	Taken []string
	// Selector says which children may be owned. It is refused if it is nil,
	// matches everything or can match nothing.
	Selector labels.Selector
	// Template is what new pods are made from if New is nil. Its labels must match
	// Selector. It is ignored for children that are not pods.
	Template *corev1.PodTemplateSpec
	// New returns a new child, another one with each call. name is the name that the
	// child will have, such as its slot; it is "" if the API server chooses the name. If there
	// is a name, the child must have that one or none. New
	// sets the labels, which must match Selector, and what the child is to be; Scale.New
	// sets the rest. If New is nil, pods are made from Template, and for other children it is
	// an error if one has to be created.
	New func(name string) (T, error)
	// MinReadySeconds is for how many seconds a child must be ready to count as
	// available. It changes no plan but those of MaxUnavailable and MaxSurge. Negative is refused.
	MinReadySeconds int32
	// BurstReplicas is how many children one plan creates, deletes or discards at most; the
	// rest is left to later plans. 0 means DefaultBurstReplicas. Negative is
	// refused.
	BurstReplicas int
	// MaxDeletions is how many children one plan may delete, if that is less than
	// BurstReplicas. It is no disruption budget, because the next plan may delete more before
	// other children have become ready. nil means that only BurstReplicas counts, 0 that
	// nothing may be deleted now. Negative is refused.
	MaxDeletions *int
	// MaxUnavailable and MaxSurge bound a rollout, which replaces the children that have to go by
	// Rules.MustGo or Rules.ReadyWithin. MaxUnavailable is how many fewer than Replicas may be
	// available, and MaxSurge how many more there may be, while others have to go. Each is a
	// number or a percentage of Replicas; as in a Deployment, that of MaxUnavailable is rounded
	// down and that of MaxSurge up, and if both become 0, one may be unavailable. While a child has
	// to go, a plan may create and delete, those that are not ready or not available go first
	// (with Slots the order of the rules decides), and none that is available goes while too few
	// are. No child is created that a later plan of the same rollout deletes. A child in no wanted
	// slot has to go, too.
	//
	// If only one of them is set, the other is 0. If both are nil, as many as must go are deleted at
	// once. Refused are negative numbers, more than 100% unavailable, MaxSurge with Slots, and 0
	// for both if so a child that has to go can never go.
	MaxUnavailable, MaxSurge *intstr.IntOrString
	// PendingAdoptions is the number of orphans that may become the owner's, because it
	// is not decided yet whether their adoption succeeds. So many fewer children
	// are created, and none is deleted because of them. Do not pass these orphans
	// to Manage: it would plan to adopt them. Negative is refused.
	PendingAdoptions int
	// CreationsInFlight are names whose creation had no answer and may still take effect, the
	// first to be sent again at the front. ledger.InFlight returns them. A plan sends again those
	// that begin with the prefix of Names and that no object has. Each of the others holds a
	// place. With Slots none does, as its slot is a place. A name that another object has
	// belongs in Taken instead, because the server refuses it. If it is nil, nothing is in flight.
	CreationsInFlight []string
	// DeletionsInFlight are the UIDs of children whose deletion had no answer and may still take
	// effect. These children count as there for what is created, and as gone for what is
	// deleted. A plan deletes them again before others. UIDs of no child do no harm. For a child
	// without a UID, as fake clients make it, write its namespace, "/" and its name. nil is as above.
	DeletionsInFlight []types.UID
	// Rules say what the state of a child means, and which child is deleted first.
	Rules Rules[T]
	// Related returns the children of the owner and of its siblings, such as the
	// ReplicaSets of one Deployment: the function Related finds them. In
	// Kubernetes' order, the more of them are active on a pod's node, the sooner
	// that pod goes. If it is nil or returns none, pods are not ranked by that. Otherwise
	// the owned children count too, and a child in both lists, by UID, counts once. It is
	// called once by a plan that deletes, and by no other.
	Related func() []T
	// Names returns a name for a new child: the prefix and up to 5 characters more.
	// The prefix is BaseName or the owner's name, and "-", cut after 58 characters, so the name
	// has at most 63. If the name is one that an object in the list has, that is in Taken, or
	// that Names returned before for the same plan, Names is called again. A name that
	// is not legal is an error; but if the owner's own name is not legal, as in
	// tests with fake clients, only an empty name is an error. If Names is nil, the
	// API server chooses the names.
	Names func(prefix string) string
	// Now is the instant of the decision. The zero time is refused.
	Now time.Time
	// Pending and PendingFor are what expectations.Store.State returned for the
	// owner. Call State BEFORE you list the children. If Pending is Waiting, a plan
	// has claims, but it creates and deletes nothing. If it is Expired, a plan that
	// would create or delete something, or to which MaxDeletions or MustStay leave another
	// number than Replicas, is Blocked by ViewIsStale and does nothing. A plan with nothing to
	// do is not Blocked, though the number may be right by chance: list live then too,
	// unless the list shows all that Store.Get says is outstanding.
	Pending    expectations.State
	PendingFor time.Duration
}

// ReplicaSetSpec returns the Spec of a ReplicaSet. Now must be set by the caller,
// and Related, BurstReplicas, Names, Pending and PendingFor may be. Owner and
// Template point into rs.
//
// Differs from Kubernetes: nil replicas, and a nil, empty or invalid selector, are
// errors. No API server stores such a ReplicaSet, so its source is broken;
// Kubernetes panics, releases every pod, or adopts every orphan.
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

// checkOwner refuses what would make any decision dangerous.
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

// otherKind is the group and kind that the owner says it has, if it does, as
// objects from typed caches do not, and if it is not that of the spec.
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

// checkScale refuses what ScaleTo can not act on.
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

// begin refuses what ScaleTo can not act on. It replaces what depends on the instant and on the
// owner's deletion by what that means for this decision.
func (s *Spec[T]) begin() error {
	if err := s.checkScale(); err != nil {
		return err
	}
	s.Replicas, s.Rules = s.Wanted(), s.Rules.at(s.Now)
	return nil
}

// Wanted returns how many children are wanted: Replicas, or none if the owner is being deleted
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

// check refuses what Manage can not act on.
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

// checkCreate refuses what no child can be created from.
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

// checkName refuses what no API server takes for a name.
func checkName(name string) error {
	if faults := validation.NameIsDNSSubdomain(name, false); len(faults) > 0 {
		return fmt.Errorf("%s", strings.Join(faults, "; "))
	}
	return nil
}

// blocked says why nothing may be created or deleted, whatever it be. Deletion of
// the owner comes first: it stays.
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
