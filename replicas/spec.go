// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"errors"
	"fmt"
	"math"
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

// DefaultBurstReplicas is the maximum number of children that one plan creates or deletes if Spec.BurstReplicas is 0.
const DefaultBurstReplicas = 500

// SpecOfPods is the Spec of an owner whose children are pods.
type SpecOfPods = Spec[*corev1.Pod]

// A Spec describes the desired children of an owner. It contains everything that Manage needs, except the existing
// children. ReplicaSetSpec and ReplicationControllerSpec return a Spec, and for a kind of your own, you fill in the
// fields yourself. The functions of this package do not change a Spec. It is safe for concurrent use if its functions
// are.
type Spec[T metav1.Object] struct {
	// Owner is the object that owns the children, and is required. A child belongs to the owner if its controller
	// reference has the owner's UID, or without a UID, as with fake clients, the owner's group, kind and name. While
	// the owner has a deletionTimestamp, nothing is adopted, released or created, and its children are deleted only if
	// the owner also has the finalizer in the field Finalizer.
	Owner metav1.Object
	// Finalizer is the name of a finalizer that keeps a deleted owner until its children are gone. While an owner with
	// this finalizer is being deleted, all its children are deleted, with the rules, the order and the limits of any
	// other plan. But if the owner also has the finalizer "orphan", its children are not deleted. You must add the
	// finalizer to the owner, and remove it when the owner has no children left. If Finalizer is empty, no plan deletes
	// the children of a deleted owner.
	//
	// A deleted owner needs no new children, so Paused and everything that describes or replaces children is ignored,
	// and a mistake in it is not refused: BaseName, Replicas, the names of Slots, Template, New, MinReadySeconds,
	// MaxUnavailable, MaxSurge, Facts.Undecided and Rules.ReadyWithin. But without a usable Selector, no child of the
	// owner is known. So if Selector is refused, or if Kind.Spec returns an error, the owner and its children are kept.
	// A Controller says so in an event at once, and again each hour.
	//
	// If the owner has the finalizer "foregroundDeletion", the garbage collector also deletes the children, in its own
	// order.
	Finalizer string
	// Kind is the owner's kind, which is written into the owner references of adopted and created children. Its Version
	// and Kind are required, and its Group is empty for the core group. The Spec is refused if the owner's TypeMeta
	// contains another group or kind, but a TypeMeta without an apiVersion, as fixtures often have it, names no group.
	Kind schema.GroupVersionKind
	// BaseName is the part before the "-" in the names of new children. If it is empty, the owner's name is used. A
	// BaseName that is not a legal object name is refused.
	BaseName string
	// Paused means that nothing is created, changed or deleted. The plan still contains Claims, its Blocked has the
	// reason Paused, and a Controller still writes the status. An owner that is being deleted is never paused; see
	// Finalizer.
	Paused bool
	// Replicas is the desired number of active children. A negative number is refused.
	Replicas int32
	// Slots returns the name of slot i, counted from 0. Set Slots if each child has its own place, such as an ordinal,
	// a zone or a node. If Slots is nil, no child has. Slot i is called a wanted slot if i is below Replicas. Unless
	// SlotOf is set, each child has the name of its slot. The function Ordinals returns a function that you can use as
	// Slots. The Spec is refused if a slot has an illegal name such as "", if two slots have the same name, or if
	// Replicas is above MaxSlots. Each plan calls Slots with ascending i, but only until it has found the slots that it
	// needs, so a mistake in the name of another slot may not be found.
	//
	// A plan creates a child for each empty wanted slot, in the order of the slots. But while an object in the list has
	// the name of the slot, for example a child that is being deleted, the new child waits until that object is gone.
	// An orphan is adopted only if it has the name of an empty wanted slot.
	//
	// An active child outside the wanted slots must go, before all others, unless MustStay keeps it. Of several, the
	// one with the longest name goes first, and of equally long names, the last in alphabetical order. So web-10 goes
	// before web-9. While a wanted slot is empty, a plan does not reduce the number of children below Replicas, but it
	// creates and deletes at the same time. For example, Replicas is 3, and web-0, web-2, web-3 and web-4 exist. Then
	// the first plan creates web-1 and deletes web-4, and the next one deletes web-3. So a quota must leave room for
	// one more child for each empty slot. If it is full, only the creations wait. If two active children have the name
	// of the same wanted slot, that slot is left alone; see Scale.Doubled.
	//
	// Slots also decides which child goes. For example, an owner of web-0, web-1 and web-2 is to keep web-0 and web-2.
	// Its spec then asks for two replicas and names ordinal 1, both in one update, and Slots returns web-0 and web-2,
	// as in the example of Spec.
	//
	// With Slots, Facts.Names is called only if SlotOf is also set.
	Slots func(i int) string
	// SlotOf returns the slot of a child, usually from a label or an annotation, and may be set with Slots. If it is
	// nil, the slot of a child is its name. Otherwise the name of a child is its slot, "-" and up to 5 other
	// characters, and SlotIn returns the slot of a name, for New. So the old and the new child of a slot can overlap,
	// and MaxSurge may be above 0. SlotOf must return equal results for equal children, and the slot of its name for
	// each child that New returns.
	//
	// In each wanted slot, one child is the keeper: of those that need not go, the one that would be deleted last. All
	// other children are like children outside the wanted slots. A slot without an active child is filled at once, in a
	// rollout also one whose children must all go, as far as MaxSurge and MaxUnavailable allow. A creation in flight
	// fills only its own slot. If Rules.Active does not count a child that is leaving, its slot is filled at once.
	//
	// The Spec is refused with the reason InvalidSlots if Slots is nil, or if a slot is longer than 57 characters.
	SlotOf func(child T) string
	// Selector decides which objects can be children. It is refused if it is nil, matches everything, or cannot match
	// any object.
	Selector labels.Selector
	// NoAdoption means that the owner adopts nothing. By default it adopts orphans that match Selector, as in
	// Kubernetes. With NoAdoption they are in Claims.Ignored, as objects of other owners are, and a child that loses
	// its controller reference is no longer a child. So a person can take a pod out of service by removing its
	// reference, and the next plan replaces the pod. An orphan with the name of a slot still has this name.
	NoAdoption bool
	// Template is the template of new pods, and is used only if New is nil and the children are pods. Its labels must
	// match Selector.
	Template *corev1.PodTemplateSpec
	// New returns the object for a new child, a different one with each call. Its argument is the name of the child,
	// which with Slots and without SlotOf is the name of its slot, and the object must have this name or none. If the
	// API server chooses the name, the argument is "". New sets the content of the child and its labels, which must
	// match Selector. Scale.New sets the namespace, the name and the controller reference. If New is nil, pods are
	// built from Template, and for other children Manage returns an error if a child must be created.
	//
	// Children may share what their objects point to, such as a map of labels, or a map of the owner in the cache. A
	// Controller sends a deep copy of each child, so no client changes what is shared. In a loop of your own, copy a
	// child before you change its maps, or before a client decodes the answer into it.
	New func(name string) (T, error)
	// Groups divides the children into parts, each with its own number, names and limits, such as the head and the
	// workers of a cluster. Each group is planned as if it were the only one, so no group waits for another. Selector,
	// Rules, Update, Retire, Finalizer, Paused and BurstReplicas are those of all groups, and BurstReplicas limits each
	// of them. But these fields of the Spec are replaced by those of each Group, and are refused if GroupOf is set:
	// BaseName, Replicas, Slots, Template, New, MaxUnavailable, MaxSurge and MaxDeletions. The Spec is refused with the
	// reason InvalidGroups if two groups have the same name, BaseName or slot, or if Facts.Names is nil and a group has
	// no Slots.
	Groups []Group[T]
	// GroupOf returns the name of a child's group, usually the value of a label, and is required with Groups. It must
	// return equal results for equal children, and is also called for orphans that match Selector.
	//
	// A group that is no longer in Groups is a group of 0 without limits, so its children are deleted. A child of the
	// group "" counts for no group, and is neither deleted nor changed, except while the owner is drained by its
	// Finalizer. So if a Kind gets groups and has children without the label, GroupOf should return their group, and
	// Update can set the label. An orphan is adopted only if its group is in Groups.
	GroupOf func(child T) string
	// Update returns the change that a child needs, or the zero Change. Set Update if children are changed in place and
	// not replaced. If it is nil, no child is changed.
	//
	// First make sure that Rules.Ready returns false for a child that does not run its newest spec yet, for example
	// because its status.observedGeneration is below its metadata.generation. Otherwise a child that was just changed
	// still counts as available, and MaxUnavailable limits nothing. replicastest.CheckUpdate tests this for a Kind.
	//
	// A change that is not Free makes its child unavailable, so MaxUnavailable limits these changes together with the
	// deletions, which come first. While a child needs such a change, no plan lowers the number of available children
	// below Replicas minus MaxUnavailable. A percentage that would be rounded down to 0 is 1 for changes. Without
	// MaxUnavailable and MaxSurge, all children are changed at once. BurstReplicas limits the changes of one plan, too.
	//
	// Children that must go are not changed, and Update is not called if Rules.MustGo returns true. Children that must
	// stay get only Free changes. A child that is being deleted is changed only if Rules.Active counts it. While the
	// owner is paused or is being deleted, no child is changed.
	//
	// Compare only what you own, preferably the hash of your template in a label. Update is called for each active
	// child and each plan. It must return equal results for equal children, and must not modify the child. If another
	// client, a webhook or a default of the server undoes a change, Update returns the same change again. A Controller
	// reports that in an event, and makes the change again after a minute, and later after up to five.
	//
	// The Spec is refused with the reason InvalidChange if a Change cannot be made. This includes one that is not Free
	// and can never be made, because MaxUnavailable is the number 0, or only MaxSurge is set. With either limit,
	// it also includes a change of a pod that is not Free, unless Rules.Ready or Rules.Available is set.
	Update func(child T) Change[T]
	// Retire returns the change that asks a child to leave, or if leaves is false, the change that takes that back. Set
	// Retire if children drain before they are deleted, or if their own controller deletes them. The plan then contains
	// a mark in place of the delete call; see Deletion.Mark. But if the result is zero, the child is deleted by a call,
	// or cannot be taken back. Rules.Leaving must report the mark, and nothing else may be changed by it.
	//
	// A mark counts like a deletion: limits and order are the same, MustStay prevents it, and a marked child is
	// replaced as Rules.Leaving says. In the end its own controller deletes it, or Rules.Discard ("it has drained").
	// While fewer children stay than are wanted, a plan takes marks back before it creates a child, those first that
	// would have been deleted last, but never that of a child that must go. With Slots and without SlotOf, a marked
	// child keeps its slot until it is gone, so two hours of draining are two hours without a replacement. While the
	// owner is drained by its Finalizer, its children are marked too.
	//
	// Put the reason of your request into the mark, and let Discard compare it: a mark that was left from an earlier
	// request must not delete a member that has not drained for this one. The Spec is refused with the reason
	// InvalidChange if Leaving is nil, or if a Change cannot be made.
	Retire func(child T, leaves bool) Change[T]
	// MinReadySeconds is how many seconds a child must be ready before it counts as available. It affects a plan only
	// if MaxUnavailable or MaxSurge is set. A negative number is refused.
	MinReadySeconds int32
	// BurstReplicas is the maximum number of children that one plan creates, changes or discards, and also of those
	// that it deletes unless MaxDeletions is set. Later plans do the rest of the work. 0 means DefaultBurstReplicas,
	// and a negative number is refused.
	BurstReplicas int
	// MaxDeletions is the maximum number of children that one plan deletes, in place of BurstReplicas. It may be above
	// BurstReplicas, so an owner can grow slowly and shrink fast. It is not a disruption budget, because the next plan
	// may delete children before other children are ready. Nil means that BurstReplicas limits deletions, and 0 that
	// nothing may be deleted now. A negative number is refused.
	MaxDeletions *int
	// MaxUnavailable and MaxSurge limit a rollout, which replaces the children that must go because of Rules.MustGo or
	// Rules.ReadyWithin, and makes the changes that Update returns. A plan of a rollout never lowers the number of
	// available children below Replicas minus MaxUnavailable, and never raises the number of all children above
	// Replicas plus MaxSurge. But with Slots, a plan that may not delete any child may fill one empty slot, even if the
	// owner then has more than Replicas children. With SlotOf, a child outside the wanted slots that must stay does not
	// count for MaxSurge.
	//
	// Each of the two limits is a number or a percentage of Replicas. As in a Deployment, a percentage in
	// MaxUnavailable is rounded down and one in MaxSurge up, and if both limits are then 0 and at least one of them is
	// a percentage, one child may be unavailable. If only one of them is set, the other is 0. If both are nil, all
	// children that must go are deleted at the same time.
	//
	// A plan of a rollout may both create and delete children, but it creates none that a later plan of the same
	// rollout would delete. Children that are not ready or not available are deleted first, and no available one is
	// deleted while too few are available. With Slots, the order in Rules decides which children are deleted first, and
	// children outside the wanted slots must also go.
	//
	// The Spec is refused if a limit is negative, if MaxUnavailable is above 100%, or if MaxSurge is not 0 with Slots
	// and without SlotOf. It is also refused if children must go that a rollout could never replace because both limits
	// are 0.
	MaxUnavailable, MaxSurge *intstr.IntOrString
	// Rules define how the state of a child is interpreted, and which child is deleted first.
	Rules Rules[T]
	// DeleteOptions are the options with which children are deleted, such as the grace period, or the propagation
	// policy for what the children own themselves. The zero DeleteOptions leave both to the server if the children are
	// pods. Without a policy, the server would orphan the dependents of a batch/v1 Job and a v1 ReplicationController,
	// and delete those of all other objects, so children that are not pods are deleted with Background propagation. But
	// a policy that is set here counts, and so does a finalizer of the garbage collector in the child, which says what
	// becomes of its dependents. Preconditions are refused, because each deletion has its own, and so is DryRun.
	DeleteOptions metav1.DeleteOptions
	// Facts are what the caller knows of this moment. The other fields say what the owner wants.
	Facts Facts[T]

	group string // the name of the group that this Spec plans alone
}

// Facts are what the caller of Manage knows of the moment at which a plan is made. A loop of your own fills them in for
// each plan, with the clock, a name generator, and what a ledger.Ledger remembers. A Controller fills them in itself,
// so a Kind.Spec leaves them zero, except that it may set Related and Taken. Only Now is required.
type Facts[T metav1.Object] struct {
	// Now is the time at which the plan is made. The zero time is refused.
	Now time.Time
	// Names returns a name for a new child, which should consist of the given prefix and at most 5 other characters,
	// and so has at most 63. The prefix is BaseName or the owner's name, followed by "-" and truncated to 58
	// characters. But with groups it is the base of the group and "-", with SlotOf the slot and "-", and in both cases
	// the other characters contain no "-". If the name is in Taken, or belongs to an object in the list or to another
	// new child, Names is called again. An illegal name is an error, but if BaseName is empty and the owner's own name
	// is illegal, which only fake clients accept, any name will do that is not empty. If Names is nil, the API server
	// chooses the names.
	Names func(prefix string) string
	// Undecided lists orphans that may belong to the owner already, or may be adopted later. Do not pass these orphans
	// to Manage too, because Manage would plan to adopt them. Each of them holds a place, so a plan creates one child
	// fewer for it. With Slots, it holds only its slot, and with Groups, a place in its group. Deletions are not
	// affected. A nil object is refused.
	Undecided []T
	// CreationsInFlight lists the names of children whose creation got no answer and may still take effect, such as
	// those that the method InFlight of a ledger.Ledger returns. A plan repeats these creations in the order of the
	// slice, if the name begins with the prefix that is passed to Names and no object has it. A child whose creation is
	// not repeated counts as existing. But with Slots, it can fill only the slot of its name, and with Groups, it
	// counts in the group of its name. If another object has the name, the server will refuse the creation, so put the
	// name into Taken instead.
	CreationsInFlight []string
	// DeletionsInFlight lists the UIDs of children whose deletion got no answer and may still take effect. They count
	// as existing when a plan decides how many children to create, and as deleted when it decides how many to delete. A
	// plan that deletes children repeats these deletions before any others. A UID that belongs to no child is ignored.
	// For a child without a UID, as with fake clients, use its namespace, "/" and its name instead.
	DeletionsInFlight []types.UID
	// UpdatesInFlight lists the UIDs of children whose change got no answer and may still take effect. Such a child
	// does not count as available. So if it still needs a change, the plan repeats the change before all others, even
	// if no available child may be changed now. A child that is leaving also holds a place, because its mark may have
	// been taken back. Changes that are Free need not be listed. A UID that belongs to no child is ignored. For a child
	// without a UID, see DeletionsInFlight.
	UpdatesInFlight []types.UID
	// Taken contains names that new children must not get, because they belong to other objects, or other objects may
	// still get them. The names of the objects in the list and in Undecided need not be repeated here.
	Taken []string
	// Related returns the children of the owner and of its siblings, such as all ReplicaSets of one Deployment. The
	// function Related in this package finds them. Kubernetes' own order deletes a pod sooner if more related pods are
	// active on its node. The owned children are counted too, and a child whose UID is in both lists once. If Related
	// is nil or returns no children, this criterion is skipped. A plan that deletes children, or whose children need a
	// change, calls Related once. Other plans do not call it.
	Related func() []T
	// Pending and PendingFor are the results of expectations.Store.State for the owner. Call State BEFORE you list the
	// children. While Pending is expectations.Waiting, a plan contains Claims, but creates, changes and deletes
	// nothing.
	//
	// If Pending is expectations.Expired, a plan is blocked that would create or delete something, whose children need
	// a change, or whose owner has the wrong number of children; see ViewIsStale. The number can be wrong even if
	// nothing would be created or deleted, for example because MaxDeletions or MustStay prevents the deletion of
	// surplus children. But it can also be right by chance, because the list is stale. So list the children from the
	// API server even if the plan is empty, unless the cached list already shows all outstanding changes that
	// expectations.Store.Get returns.
	Pending    expectations.State
	PendingFor time.Duration
}

// ReplicaSetSpec returns the Spec of a ReplicaSet. The caller must set Facts.Now, and may set BurstReplicas and the
// other Facts. Owner and Template refer to the objects in rs.
//
// Differs from Kubernetes: nil replicas, and a nil, empty or invalid selector, are errors. No API server stores a
// ReplicaSet with one of these errors, for which Kubernetes panics, releases every pod, or adopts every orphan.
func ReplicaSetSpec(rs *appsv1.ReplicaSet) (SpecOfPods, error) {
	if rs == nil {
		return SpecOfPods{}, errors.New("replicas: replica set is nil")
	}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	sel, err := selector.ForReplicaSet(rs)
	if err != nil {
		return SpecOfPods{}, &RefusedError{Reason: InvalidSelector, Err: err}
	}
	if rs.Spec.Replicas == nil {
		return SpecOfPods{}, refuse(rs, kind, InvalidReplicas, "spec.replicas is nil")
	}
	return SpecOfPods{
		Owner:           rs,
		Kind:            kind,
		Replicas:        *rs.Spec.Replicas,
		Selector:        sel,
		Template:        &rs.Spec.Template,
		MinReadySeconds: rs.Spec.MinReadySeconds,
	}, nil
}

// ReplicationControllerSpec returns the Spec of a ReplicationController, as ReplicaSetSpec does for a ReplicaSet. A nil
// template is also an error.
func ReplicationControllerSpec(rc *corev1.ReplicationController) (SpecOfPods, error) {
	if rc == nil {
		return SpecOfPods{}, errors.New("replicas: replication controller is nil")
	}
	kind := corev1.SchemeGroupVersion.WithKind("ReplicationController")
	sel, err := selector.ForReplicationController(rc)
	if err != nil {
		return SpecOfPods{}, &RefusedError{Reason: InvalidSelector, Err: err}
	}
	if rc.Spec.Replicas == nil {
		return SpecOfPods{}, refuse(rc, kind, InvalidReplicas, "spec.replicas is nil")
	}
	if rc.Spec.Template == nil {
		return SpecOfPods{}, refuse(rc, kind, InvalidTemplate, "spec.template is nil")
	}
	return SpecOfPods{
		Owner:           rc,
		Kind:            kind,
		Replicas:        *rc.Spec.Replicas,
		Selector:        sel,
		Template:        rc.Spec.Template,
		MinReadySeconds: rc.Spec.MinReadySeconds,
	}, nil
}

func (s *Spec[T]) failure(format string, args ...any) error {
	if s.group != "" {
		format, args = "group %q: %w", []any{s.group, fmt.Errorf(format, args...)}
	}
	return failure(s.Owner, s.Kind, format, args...)
}

func (s *Spec[T]) refuse(reason, format string, args ...any) error {
	return &RefusedError{Reason: reason, Err: s.failure(format, args...)}
}

// checkOwner returns an error if Owner or Kind is incomplete, or if they do not match.
func (s *Spec[T]) checkOwner() error {
	switch {
	case object.IsNil(s.Owner):
		return errors.New("replicas: owner is nil")
	case s.Kind.Kind == "" || s.Kind.Version == "":
		return fmt.Errorf("replicas: owner %q: kind %q is incomplete", object.Name(s.Owner), s.Kind)
	case s.otherKind() != "":
		return fmt.Errorf("replicas: owner %q: its apiVersion and kind say %s, but Spec.Kind, which a Controller takes from Kind.Owner, is %q", object.Name(s.Owner), s.otherKind(), s.Kind)
	case s.Owner.GetUID() == "" && s.Owner.GetName() == "":
		return s.failure("metadata.uid and metadata.name are empty")
	}
	return nil
}

// otherKind returns the group and kind in the owner's TypeMeta if they differ from Spec.Kind, and "" if not.
func (s *Spec[T]) otherKind() string {
	owner, ok := s.Owner.(runtime.Object)
	if !ok {
		return ""
	}
	own := owner.GetObjectKind().GroupVersionKind()
	if own.GroupVersion().Empty() {
		own.Group = s.Kind.Group // {Kind: ReplicaSet} without an apiVersion is no ReplicaSet of the core group
	}
	if own.Kind == "" || own.GroupKind() == s.Kind.GroupKind() { // objects from typed caches have no TypeMeta
		return ""
	}
	return own.GroupKind().String()
}

// checkScale returns an error if ScaleTo cannot use the spec.
func (s *Spec[T]) checkScale() error {
	switch {
	case s.Replicas < 0:
		return s.refuse(InvalidReplicas, "replicas %d is negative", s.Replicas)
	case s.BurstReplicas < 0:
		return s.failure("burst replicas %d is negative", s.BurstReplicas)
	case s.MaxDeletions != nil && *s.MaxDeletions < 0:
		return s.failure("max deletions %d is negative", *s.MaxDeletions)
	case object.IndexNil(s.Facts.Undecided) >= 0:
		return s.failure("facts.undecided[%d] is nil", object.IndexNil(s.Facts.Undecided))
	case s.BaseName != "" && checkName(s.BaseName) != nil:
		return s.failure("base name %q: %w", s.BaseName, checkName(s.BaseName))
	case s.SlotOf != nil && s.Slots == nil && s.GroupOf == nil:
		return s.refuse(InvalidSlots, "SlotOf is set, and Slots is nil")
	case s.SlotOf != nil && s.Slots != nil && s.Facts.Names == nil && !s.isEnding():
		return s.failure("facts.names is nil, and SlotOf is set: nothing would tell the slot of a creation without an answer")
	case s.Facts.Now.IsZero():
		return s.failure("now is the zero time")
	case s.Retire != nil && s.Rules.Leaving == nil:
		return s.refuse(InvalidChange, "Retire is set, and Rules.Leaving is nil: nothing would tell a marked child")
	}
	if err := s.checkReadyWithin(); err != nil {
		return err
	}
	if err := s.checkDeleteOptions(); err != nil {
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
		return s.refuse(InvalidReplicas, "readyWithin %v is negative", within)
	case within < least:
		return s.refuse(InvalidReplicas, "readyWithin %v is below minReadySeconds, which is %v", within, least)
	case complete.Ready == nil:
		return s.failure("readyWithin is %v, and Rules.Ready is nil: no %T is ever ready", within, *new(T))
	case complete.NotReadySince == nil:
		return s.failure("readyWithin is %v, and Rules.NotReadySince is nil", within)
	}
	return nil
}

// begin returns an error if ScaleTo cannot use the spec, and otherwise prepares it for the time in Now.
func (s *Spec[T]) begin() error {
	if err := s.checkOwner(); err != nil {
		return err
	}
	if s.isEnding() {
		*s = s.deletionsOnly()
	}
	if err := s.checkScale(); err != nil {
		return err
	}
	if err := s.checkGroups(); err != nil {
		return err
	}
	s.Rules = s.Rules.at(s.Facts.Now)
	return nil
}

// isEnding reports whether the owner is being deleted.
func (s *Spec[T]) isEnding() bool { return s.Owner.GetDeletionTimestamp() != nil }

// deletionsOnly returns the Spec of an owner that wants no children.
func (s *Spec[T]) deletionsOnly() Spec[T] {
	// A user set a template that is refused, and then deleted the owner to get rid of it. If the
	// template still counted, the children would never go, and the finalizer would keep the owner.
	rules, facts := s.Rules, s.Facts
	rules.ReadyWithin = 0
	facts.Names, facts.Undecided, facts.CreationsInFlight, facts.Taken = nil, nil, nil, nil
	return Spec[T]{
		Owner: s.Owner, Finalizer: s.Finalizer, Kind: s.Kind, Selector: s.Selector,
		Slots: s.Slots, Rules: rules, Retire: s.Retire, // for the order, and because children drain here, too
		Groups: s.emptied(), GroupOf: s.GroupOf, SlotOf: s.SlotOf,
		BurstReplicas: s.BurstReplicas, MaxDeletions: s.MaxDeletions, DeleteOptions: s.DeleteOptions,
		Facts: facts,
	}
}

// Wanted returns the desired number of children: Replicas or the sum of all groups, but 0 if Draining returns true.
func (s *Spec[T]) Wanted() int32 {
	if s.Draining() {
		return 0
	}
	wanted := int64(s.Replicas)
	for _, g := range s.Groups {
		wanted += int64(g.Replicas)
	}
	return int32(min(wanted, math.MaxInt32))
}

// Draining reports whether the owner is being deleted and is kept by the Finalizer until its children are gone. It
// returns false if the owner also has the finalizer "orphan".
func (s *Spec[T]) Draining() bool {
	if s.Finalizer == "" || object.IsNil(s.Owner) || s.Owner.GetDeletionTimestamp() == nil {
		return false
	}
	finalizers := s.Owner.GetFinalizers()
	// kubectl delete --cascade=orphan leads to the finalizer "orphan": the children must outlive their owner.
	return slices.Contains(finalizers, s.Finalizer) && !slices.Contains(finalizers, metav1.FinalizerOrphanDependents)
}

// check returns an error if Manage cannot use the spec.
func (s *Spec[T]) check() error {
	if err := s.begin(); err != nil {
		return err
	}
	if s.MinReadySeconds < 0 {
		return s.refuse(InvalidReplicas, "minReadySeconds %d is negative", s.MinReadySeconds)
	}
	if err := s.checkSelector(); err != nil {
		return err
	}
	switch {
	case s.isEnding():
	case s.GroupOf != nil:
		return s.checkMakers()
	case s.New == nil && rulesOfPods[T]() != nil:
		return s.checkTemplate()
	}
	return nil
}

// checkCreate returns an error if no child can be created from the spec.
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
	return s.failure("New is nil, and %T is not a pod", *new(T))
}

func (s *Spec[T]) checkSelector() error {
	if err := object.CheckSelector(s.Selector); err != nil {
		return s.refuse(InvalidSelector, "%w", err)
	}
	return nil
}

func (s *Spec[T]) checkTemplate() error {
	switch {
	case s.Template == nil:
		return s.refuse(InvalidTemplate, "template is nil")
	case len(s.Template.Labels) == 0:
		return s.refuse(InvalidTemplate, "template has no labels")
	case !s.Selector.Matches(labels.Set(s.Template.Labels)):
		return s.refuse(InvalidTemplate, "template labels %q do not match selector %q",
			labels.Set(s.Template.Labels), s.Selector)
	}
	return nil
}

// checkName returns an error if the name is not a DNS subdomain, as API servers require.
func checkName(name string) error {
	if faults := validation.NameIsDNSSubdomain(name, false); len(faults) > 0 {
		return fmt.Errorf("%s", strings.Join(faults, "; "))
	}
	return nil
}

// blocked returns the reason why nothing may be created, changed or deleted, or the zero Blocked.
func (s *Spec[T]) blocked() Blocked {
	switch {
	// First, because a deletion cannot be undone. The garbage collector deletes the children or orphans them.
	case s.isEnding() && !s.Draining():
		return Blocked{Reason: OwnerDeleted}
	case s.Paused:
		return Blocked{Reason: Paused}
	// The cache does not show yet what the last pass created, so this one would create it again.
	case s.Facts.Pending == expectations.Waiting:
		return Blocked{Reason: ExpectationsPending, Until: s.Facts.Now.Add(s.Facts.PendingFor)}
	}
	return Blocked{}
}
