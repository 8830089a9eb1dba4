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

// DefaultBurstReplicas is the maximum number of children that one plan creates or deletes if
// Spec.BurstReplicas is 0.
const DefaultBurstReplicas = 500

// SpecOfPods is the Spec of an owner whose children are pods.
type SpecOfPods = Spec[*corev1.Pod]

// A Spec describes the desired children of an owner. It contains everything that Manage needs,
// except the existing children. ReplicaSetSpec and ReplicationControllerSpec return a Spec. For a
// kind of your own, fill in the fields of a Spec yourself. The functions of this package do not
// change a Spec. A Spec is safe for concurrent use if its functions are safe for concurrent use.
type Spec[T metav1.Object] struct {
	// Owner is the object that owns the children, and is required. A child belongs to the owner if
	// its controller reference has the owner's UID. If the owner has no UID, as with fake clients,
	// the group, kind and name are compared instead. If the owner has a deletionTimestamp, nothing
	// is adopted, released or created. If the owner has a deletionTimestamp, its children are
	// deleted only if the owner also has the finalizer in the field Finalizer.
	Owner metav1.Object
	// Finalizer is the name of a finalizer that keeps a deleted owner until its children are gone.
	// While an owner with this finalizer is being deleted, all its children are deleted. The rules,
	// the order and the limits of deletions are the same as in any other plan. If the owner also
	// has the finalizer "orphan", its children are not deleted. You must add the finalizer to the
	// owner, and remove it when the owner has no children left. If Finalizer is empty, no plan
	// deletes the children of a deleted owner.
	//
	// A deleted owner needs no new children, so Paused and everything that describes or replaces
	// children is ignored, and a mistake in it is not refused: BaseName, Replicas, the names of
	// Slots, Template, New, MinReadySeconds, MaxUnavailable, MaxSurge, Facts.Undecided and
	// Rules.ReadyWithin. But without a usable Selector, no child of the owner is known. So if
	// Selector is refused, or if Kind.Spec returns an error, the owner and its children are kept. A
	// Controller says so in an event at once, and again each hour.
	//
	// If the owner has the finalizer "foregroundDeletion", the garbage collector also deletes the
	// children, in its own order.
	Finalizer string
	// Kind is the owner's kind. It is written into the owner references of adopted and created
	// children. The fields Version and Kind are required. The field Group is empty for the core
	// group. If the owner's TypeMeta contains another group or kind, the Spec is refused. A TypeMeta
	// without an apiVersion, as fixtures often have it, names no group.
	Kind schema.GroupVersionKind
	// BaseName is the part before the "-" in the names of new children. If BaseName is empty, the
	// owner's name is used. If it is not empty and not a legal object name, the Spec is refused.
	BaseName string
	// Paused means that nothing is created, changed or deleted. The plan still contains Claims, and
	// its Blocked has the reason Paused. A Controller still writes the status. An owner that is being
	// deleted is never paused; see Finalizer.
	Paused bool
	// Replicas is the desired number of active children. A negative number is refused.
	Replicas int32
	// Slots returns the name of slot i, counted from 0. Set Slots if each child has its own place,
	// such as an ordinal, a zone or a node. If i is below Replicas, slot i is called a wanted slot.
	// Unless SlotOf is set, each child has the name of its slot. The function Ordinals returns a function that you can
	// use as Slots. The Spec is refused if a slot has an illegal name such as "", if two slots have
	// the same name, or if Replicas is above MaxSlots. For each plan, Slots is called with
	// ascending i, but only until the plan has found the slots that it needs. If the plan does not
	// need a slot, a mistake in the name of the slot may not be found. If Slots is nil, no child
	// has its own place.
	//
	// A plan creates a child for each empty wanted slot, in the order of the slots. If an object in
	// the list still has the name of the slot, the new child is created after this object is gone.
	// For example, the object may be a child that is being deleted. An orphan is adopted only if it
	// has the name of an empty wanted slot.
	//
	// An active child outside the wanted slots must go, unless MustStay keeps it. Children outside
	// the wanted slots are deleted before all others. Among the children outside the wanted slots,
	// the child with the longest name is deleted first. If the names of several children have the
	// same length, these children are deleted in reverse alphabetical order. So web-10 is deleted
	// before web-9. While a wanted slot is empty, a plan does not reduce the number of children
	// below Replicas, but it creates and deletes at the same time. For example, Replicas is 3, and
	// web-0, web-2, web-3 and web-4 exist. Then the first plan creates web-1 and deletes web-4, and
	// the next one deletes web-3. So a quota must leave room for one more child for each empty
	// slot. If it is full, only the creations wait. If two active children have the name of the same
	// wanted slot, that slot is left alone; see Scale.Doubled.
	//
	// Slots also decides which child goes. For example, an owner of web-0, web-1 and web-2 is to keep
	// web-0 and web-2. Its spec then asks for two replicas and names ordinal 1, both in one update,
	// and Slots returns web-0 and web-2, as in the example of Spec.
	//
	// If Slots is set, Facts.Names is not called.
	Slots func(i int) string
	// SlotOf returns the slot of a child, usually from a label or an annotation, and may be set with Slots. The name of a
	// child is then its slot, "-" and up to 5 other characters; SlotIn returns the slot of a name, for New. So the old and
	// the new child of a slot can overlap, and MaxSurge may be above 0. SlotOf must return equal results for equal
	// children, and the slot of its name for each child that New returns. If SlotOf is nil, the slot of a child is its
	// name.
	//
	// In each wanted slot, one child is the keeper: of those that need not go, the one that would be deleted last. All
	// other children are like children outside the wanted slots. A slot without an active child is filled at once, in a
	// rollout also one whose children must all go, as far as MaxSurge and MaxUnavailable allow. A creation in flight fills
	// only its own slot. If Rules.Active does not count a child that is leaving, its slot is filled at once.
	//
	// The Spec is refused with the reason InvalidSlots if Slots is nil, or if a slot is longer than 57 characters.
	SlotOf func(child T) string
	// Selector decides which objects can be children. A Selector is refused if it is nil, matches
	// everything, or cannot match any object.
	Selector labels.Selector
	// NoAdoption means that the owner adopts nothing. Orphans that match Selector are then in
	// Claims.Ignored, as objects of other owners are, and a child that loses its controller
	// reference is no child any more. So a person can take a pod out of service by removing its
	// reference, and the next plan replaces the pod. An orphan with the name of a slot still has
	// this name. If NoAdoption is false, matching orphans are adopted, as in Kubernetes.
	NoAdoption bool
	// Template is the template of new pods. It is used only if New is nil and the children are
	// pods. The labels of the template must match Selector.
	Template *corev1.PodTemplateSpec
	// New returns the object for a new child, and must return a different object with each call.
	// The argument of New is the name of the new child. With Slots, the name of the child is the
	// name of its slot. If the API server chooses the name, the argument is "". Otherwise, the
	// returned object must have the name in the argument or no name. New sets the content of the
	// child and its labels, which must match Selector. Scale.New sets the namespace, the name and
	// the controller reference. If New is nil, pods are built from Template. For children that are
	// not pods, a nil New is an error of Manage if a child must be created.
	//
	// Children may share what their objects point to. For example, all children may get the same
	// map of labels, or a map of the owner in the cache. A Controller sends a deep copy of each
	// child, so no client changes what is shared. In a loop of your own, copy a child before you
	// change its maps, or before a client decodes the answer into it.
	New func(name string) (T, error)
	// Groups divides the children into parts, each with its own number, names and limits, such as the head and the workers
	// of a cluster. Each group is planned as if it were the only one, so no group waits for another. Selector, Rules,
	// Update, Retire, Finalizer, Paused and BurstReplicas are those of all groups, and BurstReplicas limits each of them.
	// If GroupOf is set, a Group replaces these fields of the Spec, which are then refused: BaseName, Replicas, Slots,
	// Template, New, MaxUnavailable, MaxSurge and MaxDeletions. The Spec is refused with the reason InvalidGroups if two
	// groups have the same name, BaseName or slot, or if Facts.Names is nil and a group has no Slots.
	Groups []Group[T]
	// GroupOf returns the name of a child's group, usually the value of a label, and is required with Groups. It must
	// return equal results for equal children, and is also called for orphans that match Selector.
	//
	// A group that is no longer in Groups is a group of 0 without limits, so its children are deleted. If GroupOf returns
	// "", the child counts for no group, and is neither deleted nor changed, except while the owner is drained by its
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
	// below Replicas minus MaxUnavailable. A percentage that would be rounded down to 0 is 1 for changes. If neither
	// MaxUnavailable nor MaxSurge is set, all children are changed at once. BurstReplicas limits the changes of one plan,
	// too.
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
	// The Spec is refused with the reason InvalidChange if a Change cannot be made. It is also refused if a change is
	// not Free and can never be made, because MaxUnavailable is the number 0, or only MaxSurge is set. If the children
	// are pods and one of the two limits is set, the Spec is refused if a change is not Free and neither Rules.Ready nor
	// Rules.Available is set.
	Update func(child T) Change[T]
	// Retire returns the change that asks a child to leave, or if leaves is false, the change that takes that back. Set
	// Retire if children drain before they are deleted, or if their own controller deletes them. The plan then contains
	// a mark in place of the delete call; see Deletion.Mark. If the result is zero, the child is deleted by a call, or
	// cannot be taken back. Rules.Leaving must report the mark, and nothing else may be changed by it.
	//
	// A mark counts like a deletion: limits and order are the same, MustStay prevents it, and a marked child is replaced
	// as Rules.Leaving says. Who deletes it at last is the child's own controller, or Rules.Discard ("it has drained").
	// If fewer children stay than are wanted, a plan takes marks back before it creates a child, those first that would
	// have been deleted last. A child that must go is never taken back. With Slots and without SlotOf, a marked child keeps its slot
	// until it is gone, so two hours of draining are two hours without a replacement. While the owner is drained by its
	// Finalizer, its children are marked too.
	//
	// Put the reason of your request into the mark, and let Discard compare it: a mark that was left from an earlier
	// request must not delete a member that has not drained for this one. The Spec is refused with the reason
	// InvalidChange if Leaving is nil, or if a Change cannot be made.
	Retire func(child T, leaves bool) Change[T]
	// MinReadySeconds is how many seconds a child must be ready before it counts as available.
	// MinReadySeconds affects a plan only if MaxUnavailable or MaxSurge is set. A negative number
	// is refused.
	MinReadySeconds int32
	// BurstReplicas is the maximum number of children that one plan creates, changes or discards, and
	// also of those that it deletes unless MaxDeletions is set. Later plans do the rest of the work. If
	// BurstReplicas is 0, DefaultBurstReplicas is used. A negative number is refused.
	BurstReplicas int
	// MaxDeletions is the maximum number of children that one plan deletes, in place of
	// BurstReplicas. It may be above BurstReplicas, so an owner can grow slowly and shrink fast.
	// MaxDeletions is not a disruption budget, because the next plan may delete children before
	// other children are ready. If MaxDeletions is nil, BurstReplicas limits deletions. If it is 0,
	// nothing may be deleted now. A negative number is refused.
	MaxDeletions *int
	// MaxUnavailable and MaxSurge limit a rollout, which replaces the children that must go because
	// of Rules.MustGo or Rules.ReadyWithin, and makes the changes that Update returns. A plan of a
	// rollout never lowers the number of available children below Replicas minus MaxUnavailable. It
	// never raises the number of all children above Replicas plus MaxSurge, with one exception. If
	// Slots is set and a plan may not delete any child, the plan may fill one empty slot, even if the
	// owner then has more than Replicas children. Each of the two limits is a number or a percentage of Replicas. As in a
	// Deployment, a percentage in MaxUnavailable is rounded down, and a percentage in MaxSurge is
	// rounded up. If both limits are 0 after rounding, and at least one of them is a percentage,
	// one child may be unavailable.
	//
	// A plan of a rollout may both create and delete children. Children that are not ready or not
	// available are deleted first. With Slots, the order in Rules decides which children are
	// deleted first. No available child is deleted while too few children are available. A plan
	// does not create a child that a later plan of the same rollout would delete. With Slots,
	// children outside the wanted slots must also go.
	//
	// If only one of the two limits is set, the other is 0. If both are nil, all children that must
	// go are deleted at the same time. The Spec is refused if a limit is negative, or if
	// MaxUnavailable is above 100%. With Slots and without SlotOf, the Spec is also refused if MaxSurge is not 0. The
	// Spec is also refused if children must go, but a rollout could never replace them because both
	// limits are 0.
	MaxUnavailable, MaxSurge *intstr.IntOrString
	// Rules define how the state of a child is interpreted, and which child is deleted first.
	Rules Rules[T]
	// DeleteOptions are the options with which children are deleted, such as the grace period, or
	// the propagation policy for what the children own themselves. The zero DeleteOptions leave
	// both to the server if the children are pods. All other children are deleted with Background
	// propagation, unless a policy is set here, or a finalizer of the garbage collector in the
	// child says what becomes of its dependents. Preconditions are refused, because each deletion
	// has its own, and so is DryRun.
	//
	// Without a policy, the server would orphan the dependents of a batch/v1 Job and a v1
	// ReplicationController, and delete those of all other objects.
	DeleteOptions metav1.DeleteOptions
	// Facts are what the caller knows of this moment. The other fields say what the owner wants.
	Facts Facts[T]

	group string // the name of the group that this Spec plans alone
}

// Facts are what the caller of Manage knows of the moment at which a plan is made. A loop of your own fills them
// in for each plan, with the clock, a name generator, and what a ledger.Ledger remembers. A Controller fills them
// in itself, so a Kind.Spec leaves them zero, except that it may set Related and Taken. Only Now is required.
type Facts[T metav1.Object] struct {
	// Now is the time at which the plan is made. The zero time is refused.
	Now time.Time
	// Names returns a name for a new child. The name should consist of the given prefix and at most
	// 5 other characters, and with groups or SlotOf these contain no "-". With groups, the prefix is the base of the
	// group and "-", and with SlotOf, the slot and "-". Otherwise it is BaseName or the owner's name, followed by "-" and truncated
	// to 58 characters. So the name has at most 63 characters. If the name is in Taken, or belongs
	// to an object in the list or to another new child, Names is called again. An illegal name is
	// an error. If BaseName is empty and the owner's own name is illegal, Names may return any name
	// that is not empty. Only fake clients accept an owner with an illegal name. If Names is nil,
	// the API server chooses the names.
	Names func(prefix string) string
	// Undecided lists orphans that may belong to the owner already, or may be adopted later. Do not
	// pass these orphans to Manage too, because Manage would plan to adopt them. Each of them holds
	// a place, so a plan creates one child fewer for it. With Slots, it holds only its
	// slot, and with Groups, a place in its group. Deletions are not affected. A nil object is refused.
	Undecided []T
	// CreationsInFlight lists the names of children whose creation got no response and may still
	// take effect. The method InFlight of a ledger.Ledger returns such names. A plan repeats a
	// creation if the name begins with the prefix that is passed to Names, and if no object has the
	// name. Creations are repeated in the order of the slice. If a creation is not repeated, its
	// child counts as existing, except with Slots. With Slots, the child can fill only the slot
	// of its name, and with Groups, it counts in the group of its name. If another object has the name, the server will refuse the creation. In
	// this case, put the name into Taken instead.
	CreationsInFlight []string
	// DeletionsInFlight lists the UIDs of children whose deletion got no response and may still
	// take effect. When a plan decides how many children to create, it counts the children in
	// DeletionsInFlight as existing. When a plan decides how many children to delete, it counts the
	// children in DeletionsInFlight as already deleted. A plan that deletes children repeats these
	// deletions before any others. A UID that belongs to no child is ignored. If a child has no
	// UID, as with fake clients, use its namespace, "/" and its name instead of the UID.
	DeletionsInFlight []types.UID
	// UpdatesInFlight lists the UIDs of children whose change got no response and may still take effect. Such a child
	// does not count as available. So if it still needs a change, the plan repeats the change before all others, even if
	// no available child may be changed now. A child that is leaving also holds a place, because its mark may have been
	// taken back. Changes that are Free need not be listed. A UID that belongs to no child is ignored. If a child has no
	// UID, see DeletionsInFlight.
	UpdatesInFlight []types.UID
	// Taken contains names that new children must not get. Each of them belongs to another object,
	// or another object may still get it. The names of the objects in the list and in Undecided
	// need not be repeated here.
	Taken []string
	// Related returns the children of the owner and of its siblings. For example, all ReplicaSets
	// of one Deployment are siblings. The function Related in this package finds these children.
	// Kubernetes' own order deletes a pod sooner if more related pods are active on its node. If
	// Related is nil or returns no children, this criterion is skipped. If it returns children, the
	// owned children are counted too. A child whose UID is in both lists is counted once. A plan
	// that deletes children, or whose children need a change, calls Related once. Other plans do not
	// call Related.
	Related func() []T
	// Pending and PendingFor are the results of expectations.Store.State for the owner. Call State
	// BEFORE you list the children. If Pending is expectations.Waiting, a plan contains Claims, but
	// creates, changes and deletes nothing.
	//
	// If Pending is expectations.Expired, a plan that would create or delete something is blocked with
	// the reason ViewIsStale, and so is a plan whose children need a change. A plan is also blocked if
	// the owner has the wrong number of children. To get the number of children, add the active
	// children, the orphans in Claims.Adopt, and those in Undecided. The number of children is wrong
	// if it differs from Replicas. The number of children can be wrong even if the plan creates and
	// deletes nothing. For example, MaxDeletions or MustStay may prevent the deletion of surplus
	// children. If the number of children is right and none needs a change, a plan without creations,
	// deletions and discards is not blocked by ViewIsStale. But a stale list may contain the right
	// number of children by chance. So if Pending is Expired, list the children from the API server
	// even if the plan is empty. You may skip this list call if the cached list already shows all
	// outstanding changes that expectations.Store.Get returns.
	Pending    expectations.State
	PendingFor time.Duration
}

// ReplicaSetSpec returns the Spec of a ReplicaSet. The caller must set Facts.Now, and may set
// BurstReplicas and the other Facts. Owner and Template refer to the objects in rs.
//
// Differs from Kubernetes: nil replicas, and a nil, empty or invalid selector, are errors. No API
// server stores a ReplicaSet with one of these errors. In these cases Kubernetes panics, releases
// every pod, or adopts every orphan.
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

// ReplicationControllerSpec returns the Spec of a ReplicationController, as ReplicaSetSpec does for
// a ReplicaSet. A nil template is also an error.
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

// otherKind returns the group and kind in the owner's TypeMeta, or "" if they do not differ from
// Spec.Kind.
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

// begin returns an error if ScaleTo cannot use the spec. It also sets Rules to the rules that apply
// at the time in Now. If the owner is being deleted, begin keeps only what deletions need.
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

// Wanted returns the desired number of children. The result is Replicas, or the sum of all groups, or 0 if Draining
// returns true.
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

// Draining reports whether the owner is being deleted and is kept by the Finalizer until its
// children are gone. If the owner also has the finalizer "orphan", Draining returns false.
func (s *Spec[T]) Draining() bool {
	if s.Finalizer == "" || object.IsNil(s.Owner) || s.Owner.GetDeletionTimestamp() == nil {
		return false
	}
	has := s.Owner.GetFinalizers()
	return slices.Contains(has, s.Finalizer) && !slices.Contains(has, metav1.FinalizerOrphanDependents)
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

// blocked returns the reason why nothing may be created, changed or deleted. If there is no such reason, the
// result is the zero Blocked. The owner's deletion is checked first, because it cannot be undone.
func (s *Spec[T]) blocked() Blocked {
	switch {
	case s.isEnding() && !s.Draining():
		return Blocked{Reason: OwnerDeleted}
	case s.Paused:
		return Blocked{Reason: Paused}
	case s.Facts.Pending == expectations.Waiting:
		return Blocked{Reason: ExpectationsPending, Until: s.Facts.Now.Add(s.Facts.PendingFor)}
	}
	return Blocked{}
}
