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

// A Spec says which children are wanted. A Spec has everything that Manage needs, except the
// existing children. ReplicaSetSpec and ReplicationControllerSpec return a Spec. For a kind of your
// own, fill in the fields of a Spec yourself. No function of this package changes a Spec. Several
// goroutines may use a Spec at once if its functions allow that.
type Spec[T metav1.Object] struct {
	// Owner is the object that owns the children, and is required. The owner's UID decides which
	// children it has. If the owner has no UID, as with fake clients, its group, kind and name
	// decide. For an owner with a deletionTimestamp, nothing is adopted, released or created. The
	// children of such an owner are deleted only if the owner has the Finalizer.
	Owner metav1.Object
	// Finalizer is the name of a finalizer that keeps a deleted owner until its children are gone.
	// If an owner with this finalizer is being deleted, no child is wanted. All children of such an
	// owner are deleted, with the same rules, order and limits as in any other plan. If the owner
	// also has the finalizer "orphan", its children are not deleted. Add the finalizer to the owner
	// yourself, and remove it when the owner no longer has children. If a deleted owner is Paused
	// or its spec is refused, the owner and its children stay. "" means no finalizer.
	//
	// If the owner has the finalizer "foregroundDeletion", the garbage collector also deletes the
	// children, in an order of its own.
	Finalizer string
	// Kind is the kind of the owner, which is written into the owner references of adopted and
	// created children. Version and Kind are required. Group is empty for the core group. If the
	// owner's TypeMeta has another group or kind, the Spec is refused.
	Kind schema.GroupVersionKind
	// BaseName is the text with which the names of new children begin, before the "-". "" means the
	// owner's name. If BaseName is not a legal name itself, the Spec is refused.
	BaseName string
	// Paused says that nothing is created or deleted now. The plan still has Claims, and its
	// Blocked has the reason Paused. A Controller still writes the status.
	Paused bool
	// Replicas is how many active children are wanted. A negative number is refused.
	Replicas int32
	// Slots returns the name of slot i, counted from 0. Set Slots if each child has its own place,
	// such as an ordinal, a zone or a node. The slots with i below Replicas are wanted, and a child
	// has the name of its slot. The function Ordinals returns a function that you can use as Slots.
	// If a slot has an illegal name such as "", the Spec is refused. Two slots with the same name,
	// and a value of Replicas above MaxSlots, are also refused. A plan calls Slots in order, and
	// only for as many slots as it needs. So a plan refuses a wrong name only if the plan needs
	// that slot. If Slots is nil, no child has its own place.
	//
	// A plan creates a child for each wanted slot without a child, in the order of the slots. If
	// another object in the list has the name of the slot, the slot waits until that object is
	// gone. For example, that object may be a child that is being deleted. An orphan is adopted
	// only if it has the name of a wanted slot that is empty.
	//
	// An active child outside the wanted slots must go, unless MustStay keeps it. Children outside
	// the wanted slots are deleted before all others. Among those children, the child with the
	// longest name goes first. If two names have the same length, the later name in alphabetical
	// order goes first. So web-10 goes before web-9. While a wanted slot has no child, a plan
	// deletes at most the children in excess of Replicas. For example, assume that web-0, web-2,
	// web-3 and web-4 exist and 3 children are wanted. Then web-4 is deleted, web-1 is created, and
	// web-3 is deleted, in this order. So a quota must allow one child more than Replicas. Two
	// active children with the name of the same wanted slot are an error. Only a cluster-scoped
	// owner may have such children, in different namespaces.
	//
	// If Slots is set, Names is not called and PendingAdoptions is ignored. Put the names of
	// orphans with a pending adoption into Taken instead.
	Slots func(i int) string
	// Taken are names that no new child can have now, in addition to the names of the objects in
	// the list. Another object has each of these names or may still get it.
	Taken []string
	// Selector says which objects may be owned as children. A Selector that is nil, matches
	// everything or can match nothing is refused.
	Selector labels.Selector
	// Template is the template of new pods if New is nil. The labels of the template must match
	// Selector. For children that are not pods, Template is ignored.
	Template *corev1.PodTemplateSpec
	// New returns a new object for a new child, and must return another object with each call. name
	// is the name that the child will have, such as the name of its slot. If the API server chooses
	// the name, name is "". If name is not "", the returned child must have that name or no name.
	// New sets the content of the child and its labels, which must match Selector. Scale.New sets
	// the namespace, the name and the controller reference. If New is nil, pods are made from
	// Template. If New is nil and a child that is not a pod must be created, Manage returns an
	// error.
	New func(name string) (T, error)
	// MinReadySeconds is for how many seconds a child must have been ready to count as available.
	// MinReadySeconds changes a plan only if MaxUnavailable or MaxSurge is set. A negative number
	// is refused.
	MinReadySeconds int32
	// BurstReplicas is how many children one plan creates, deletes or discards at most. Later plans
	// do the rest of the work. 0 means DefaultBurstReplicas. A negative number is refused.
	BurstReplicas int
	// MaxDeletions is how many children one plan may delete, if that is less than BurstReplicas.
	// MaxDeletions is not a disruption budget, because the next plan may delete children before
	// other children are ready. nil means that only BurstReplicas limits deletions. 0 means that
	// nothing may be deleted now. A negative number is refused.
	MaxDeletions *int
	// MaxUnavailable and MaxSurge limit a rollout, which replaces the children that must go because
	// of Rules.MustGo or Rules.ReadyWithin. No plan of a rollout lowers the number of available
	// children below Replicas minus MaxUnavailable. No plan of a rollout raises the number of all
	// children above Replicas plus MaxSurge. Each of the two limits is a number or a percentage of
	// Replicas. As in a Deployment, a percentage in MaxUnavailable is rounded down, and a
	// percentage in MaxSurge is rounded up. If both limits become 0 and at least one of them is a
	// percentage, one child may be unavailable.
	//
	// A plan of a rollout may both create and delete children. Children that are not ready or not
	// available are deleted first. With Slots, the order in Rules decides instead. No available
	// child is deleted while too few children are available. No child is created that a later plan
	// of the same rollout would delete. With Slots, a child outside the wanted slots must also go.
	//
	// If only one of the two limits is set, the other is 0. If both are nil, all children that must
	// go are deleted at once. Negative numbers, a MaxUnavailable above 100%, and a MaxSurge other
	// than 0 with Slots are refused. If both limits are 0 and a child that must go could never be
	// deleted, the Spec is also refused.
	MaxUnavailable, MaxSurge *intstr.IntOrString
	// PendingAdoptions is the number of orphans whose adoption is not decided yet, so that the
	// owner may still get them. A plan creates one child less for each of these orphans, and
	// deletes no child because of them. Do not pass these orphans to Manage, because Manage would
	// plan to adopt them. A negative number is refused.
	PendingAdoptions int
	// CreationsInFlight are the names of creations that had no answer and may still take effect. A
	// plan sends these creations again in the order of the slice. The method InFlight of a
	// ledger.Ledger returns such names. A plan sends a name again if the name begins with the
	// prefix of Names and no object has the name. Each name that is not sent again counts as one
	// more child. With Slots, these names do not count, because a child with such a name would fill
	// its own slot. If another object has the name, the server refuses the creation, so put the
	// name into Taken instead. nil means that no creation is in flight.
	CreationsInFlight []string
	// DeletionsInFlight are the UIDs of children whose deletion had no answer and may still take
	// effect. These children still count when a plan decides how many children to create. These
	// children no longer count when a plan decides how many children to delete. A plan that deletes
	// children sends these deletions again before any others. A UID that no child has is ignored.
	// For a child without a UID, as with fake clients, use its namespace, "/" and its name instead
	// of the UID. nil means that no deletion is in flight.
	DeletionsInFlight []types.UID
	// Rules say what the state of a child means, and which child is deleted first.
	Rules Rules[T]
	// Related returns the children of the owner and of its siblings. For example, all ReplicaSets
	// of one Deployment are siblings. The function Related in this package finds these children. In
	// the order of Kubernetes, a pod is deleted sooner if more related pods are active on its node.
	// If Related is nil or returns no children, this criterion is left out. Otherwise the owned
	// children count as well, and a child whose UID is in both lists counts only once. A plan that
	// deletes children calls Related once, and other plans do not call it.
	Related func() []T
	// Names returns a name for a new child, which is prefix and up to 5 more characters. The prefix
	// is BaseName or the owner's name, followed by "-" and cut after 58 characters. So a name has
	// at most 63 characters. Names is called again if the name is in Taken, or if an object in the
	// list or another new child has the name. A name that is not legal is an error. In a test with
	// a fake client, the owner itself may have an illegal name. For such an owner, Names may return
	// any name that is not empty. If Names is nil, the API server chooses the names.
	Names func(prefix string) string
	// Now is the time at which the plan is made. The zero time is refused.
	Now time.Time
	// Pending and PendingFor are what expectations.Store.State returned for the owner. Call State
	// BEFORE you list the children. If Pending is expectations.Waiting, a plan has Claims, but
	// creates and deletes nothing.
	//
	// If Pending is expectations.Expired, a plan that would create or delete something is Blocked,
	// with the reason ViewIsStale. A plan is also Blocked if MaxDeletions or MustStay would leave
	// another number of children than Replicas. A plan with nothing to do is not Blocked, but a
	// stale list may have the right number of children by chance. So if Pending is Expired, list
	// the children live even if the plan is empty, unless the list shows all that
	// expectations.Store.Get says is outstanding.
	Pending    expectations.State
	PendingFor time.Duration
}

// ReplicaSetSpec returns the Spec of a ReplicaSet. The caller must set Now, and may set Related,
// BurstReplicas, Names, Pending and PendingFor. Owner and Template point into rs.
//
// Differs from Kubernetes: nil replicas, and a nil, empty or invalid selector, are errors. No API
// server stores such a ReplicaSet, so the source of rs is broken. In these cases Kubernetes panics,
// releases every pod, or adopts every orphan.
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

// ReplicationControllerSpec returns the Spec of a ReplicationController, as ReplicaSetSpec does for
// a ReplicaSet. A nil template is also an error.
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

// checkOwner refuses an owner or a kind with which no decision is safe.
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

// otherKind returns the group and kind in the owner's TypeMeta if they differ from those of the
// spec. Objects from typed caches have an empty TypeMeta.
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

// begin refuses a spec that ScaleTo cannot use. begin also sets Replicas to the number from Wanted,
// and Rules to the rules at the time Now.
func (s *Spec[T]) begin() error {
	if err := s.checkScale(); err != nil {
		return err
	}
	s.Replicas, s.Rules = s.Wanted(), s.Rules.at(s.Now)
	return nil
}

// Wanted returns how many children are wanted. The result is Replicas, or 0 if Draining returns
// true.
func (s *Spec[T]) Wanted() int32 {
	if s.Draining() {
		return 0
	}
	return s.Replicas
}

// Draining reports whether the owner is being deleted and the Finalizer keeps it until its children
// are gone.
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

// blocked returns the reason for which nothing may be created or deleted, or the zero Blocked. The
// owner's deletion is checked first, because it is final.
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
