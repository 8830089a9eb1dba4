// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// A Kind says how the Controller handles one kind of owners. O and C are the pointer types of owners and
// children, such as *appsv1.ReplicaSet and *corev1.Pod. The functions ReplicaSets and
// ReplicationControllers return a Kind each. Several goroutines may call the functions of a Kind at once.
// Unless the comment of a function allows it, the function must not block or change its arguments.
type Kind[O, C Object] struct {
	// Owner and Child are the kinds of owners and children. Required.
	Owner, Child schema.GroupVersionKind
	// ClusterScoped says that owners are in no namespace. The function New of the Spec chooses the
	// namespace of each child. An owner may have children in one namespace, in several, or in none. The
	// Controller adopts orphans in all namespaces, and its live lists cover all namespaces. If
	// ClusterScoped is false, an owner and its children are in the same namespace. If an owner's
	// namespace does not fit ClusterScoped, Sync returns an error and does nothing for that owner.
	ClusterScoped bool

	// Spec returns what an owner wants. In the result, the Controller sets Owner, Kind, Now, Names,
	// Pending, PendingFor, CreationsInFlight and DeletionsInFlight. If Related is nil, the Controller
	// sets Related. The Controller also adds undecided adoptions to PendingAdoptions, and names that
	// other objects have to Taken. If the children are not pods, Spec must set New.
	//
	// If only a change of the owner can help, return a *replicas.RefusedError. The Controller then does
	// nothing until the owner changes. The Controller sends one event for each generation of the owner
	// and each error text. New and Prepare may also return a RefusedError, which leads to the same event.
	// If New returns a RefusedError, nothing is created. With Slots, only the child that New refused is
	// left out. If Prepare returns a RefusedError, nothing is created or deleted. If Spec returns any
	// other error, the Controller sends a FailedSpec event. Sync then returns the error, so that the
	// caller tries again.
	//
	// The result of Spec must depend only on the owner, including the owner's status. After a status
	// write, the Controller calls Spec again with the written owner. Another pass follows if a number, a
	// limit, a time or the selector has changed, or if the Rules judge a child differently. If only New,
	// Template or Order has changed, no other pass follows. Required.
	Spec func(owner O) (replicas.Spec[C], error)

	// Status brings the status of owner up to date. owner is a copy, and Status may change only the
	// status of that copy. Status is called at the end of each pass that could count the children. If the
	// status write meets a Conflict, Status is called again with a fresh copy of the owner. If Status is
	// nil, no status is written.
	Status func(owner O, outcome Outcome[C]) error
	// StatusOf returns the owner's whole status, or a pointer to the whole status. The Controller
	// compares and writes the result of StatusOf as the status, so the result must not be only a part.
	// The Controller writes the status only if Status has changed it. If StatusOf is nil, the Controller
	// compares whole owners, which takes longer.
	StatusOf func(owner O) any

	// PatchType is the type of the patches that adopt and release children. Use strategic merge patches
	// for kinds that Kubernetes itself serves, and merge patches for custom resources. If PatchType is
	// "", the API group of the children decides. If the group is empty, has no dot or ends in ".k8s.io",
	// the patches are strategic merge patches. Otherwise they are merge patches.
	PatchType types.PatchType

	// Prepare adds a step of your own to each pass. The Controller calls Prepare before it creates or
	// deletes anything. Prepare chooses which part of the plan is carried out now. An operator can use
	// Prepare to make volume claims, to cordon and drain, to keep a quorum, or to put off a deletion. If
	// Prepare is nil, the whole plan is carried out.
	//
	// Prepare is called in each pass that knows which children are missing and which are too many, even
	// if the plan is empty. So Prepare can undo what it has begun for an earlier plan. For example, if
	// Prepare has cordoned a child that step.Delete no longer has, and step.Later is 0, the child is
	// wanted again. Prepare is not called while the pass waits for something, such as the cache. Prepare
	// is also not called if the plan has deletions and earlier passes have put off everything in the
	// plan. If the plan has deletions, the Controller first reads the owner from the server. If this read
	// fails, or shows that the owner wants something else now, Prepare is not called.
	//
	// Prepare removes the entries of step.Create, step.Delete and step.Discard that must not be carried
	// out now. Prepare may remove any entry, and may change all lists in place. If Prepare adds an entry,
	// the Controller sends an InvalidStep event and does nothing. The next pass plans the removed entries
	// again. The next pass runs when a child or the owner changes, or after step.Again. If Prepare
	// returns an error or panics, nothing is created or deleted. Sync returns the error, unless it is a
	// RefusedError. If Prepare has also set step.Again, that delay replaces the delay of your rate
	// limiter.
	//
	// Prepare may make calls with ctx, which ends when the ctx of Sync ends, and after PrepareTimeout at
	// the latest. Only this owner and one worker wait for such a call. All other functions of a Kind must
	// not block.
	//
	// One pass may call Prepare again in two cases. If a Conflict has shown that the view was old,
	// Prepare gets the rest of the plan, with the children of a live list. If children outside the wanted
	// slots should go first but none of them has gone, Prepare gets the missing slots to fill.
	Prepare func(ctx context.Context, owner O, step *Step[C]) error

	// Observe is called at the end of every pass. Use Observe for metrics and logs. Observe may be nil.
	Observe func(ctx context.Context, pass Pass[O, C])
}

func (k Kind[O, C]) check() error {
	switch {
	case k.Owner.Kind == "" || k.Owner.Version == "":
		return fmt.Errorf("controller: kind: Owner %q is incomplete", k.Owner)
	case k.Child.Kind == "" || k.Child.Version == "":
		return fmt.Errorf("controller: kind %s: Child %q is incomplete", k.Owner.Kind, k.Child)
	case k.Spec == nil:
		return fmt.Errorf("controller: kind %s has no Spec", k.Owner.Kind)
	}
	switch k.PatchType {
	case "", types.StrategicMergePatchType, types.MergePatchType:
		return nil
	}
	return fmt.Errorf("controller: kind %s: PatchType %q is neither a strategic nor a JSON merge patch", k.Owner.Kind, k.PatchType)
}

// A Step, the argument of Kind.Prepare, has the children that a pass is about to create and delete.
type Step[C Object] struct {
	// Now is the time at which the pass began.
	Now time.Time
	// Active are the owner's active children. A child whose deletion had no answer is left out, unless
	// the pass deletes that child again. Terminating are the children that are being deleted and are not
	// active. Do not change the children.
	Active, Terminating []C
	// Create are the names of the children to create.
	Create []string
	// Delete are the children to delete, including those whose deletion an earlier pass has put off.
	// Deletion.Replaced is true if the child must go because of a rule, and false if the child is one too
	// many. Discard are the children to clean up because they have ended.
	Delete, Discard []replicas.Deletion[C]
	// Later is how many creations and deletions the step leaves to later passes. These calls wait because
	// of MaxDeletions or BurstReplicas, or until another child is created or available. If Later is 0,
	// Delete has all children that must go.
	Later int
	// InFlight is how many earlier creations and deletions had no answer and may still take effect.
	InFlight int
	// Results are the results of all creations and deletions that Prepare has let through. Prepare gets
	// the same Results again until it returns no error. Results are lost when the process ends, so
	// Prepare must be able to learn anything important from the children alone.
	Results []Result[C]
	// Again is how long until Prepare is called again if nothing changes. Prepare sets Again. If Again is
	// 0, no such call is planned. A negative value is an error.
	Again time.Duration
}

// NoneLeft reports whether the owner has no children and no earlier call can still take effect. If so, an
// owner that is being deleted no longer needs its finalizer. Pods that have ended and are not discarded
// do not count.
func (s *Step[C]) NoneLeft() bool {
	return len(s.Active)+len(s.Terminating)+len(s.Discard)+s.InFlight == 0
}

// A Result is the result of a creation or deletion that Kind.Prepare has let through.
type Result[C Object] struct {
	// Name is the child's name. Child is the child as created, or as it was before its deletion. If no
	// child was created, Child is nil.
	Name  string
	Child C
	// Deleted is true for a deletion and false for a creation.
	Deleted bool
	// Err is why the call failed, or nil if the call succeeded. A call without an answer may have taken
	// effect, or may still take effect. The children in later passes show whether the call took effect.
	// ErrNotTried means that no call was made.
	Err error
}

// ErrNotTried is the error of a Result if no call was made. For example, slow start ended after a
// failure, a hold or the number of children forbids the call, or the child no longer belongs to the
// owner.
var ErrNotTried = errors.New("the pass did not make the call")

// PrepareTimeout is the time after which the context of a call of Kind.Prepare ends.
const PrepareTimeout = 30 * time.Second

// ReplicaSets returns the Kind of ReplicaSets. You may change the result, for example set Prepare and
// Observe, or wrap Spec to set BurstReplicas or an order.
func ReplicaSets() Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	return Kind[*appsv1.ReplicaSet, *corev1.Pod]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec:  replicas.ReplicaSetSpec,
		Status: func(rs *appsv1.ReplicaSet, o Outcome[*corev1.Pod]) error {
			s := &rs.Status
			s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = o.Counts.Replicas, o.Counts.FullyLabeled, o.Counts.Ready, o.Counts.Available
			*replicaset.Terminating(s), s.ObservedGeneration = &o.Counts.Terminating, o.Generation
			status.SetFailure(&s.Conditions, o.Failure())
			return nil
		},
		StatusOf: func(rs *appsv1.ReplicaSet) any { return &rs.Status },
	}
}

// ReplicationControllers returns the Kind of ReplicationControllers. The status of a
// ReplicationController has no terminatingReplicas.
func ReplicationControllers() Kind[*corev1.ReplicationController, *corev1.Pod] {
	return Kind[*corev1.ReplicationController, *corev1.Pod]{
		Owner: corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec:  replicas.ReplicationControllerSpec,
		Status: func(rc *corev1.ReplicationController, o Outcome[*corev1.Pod]) error {
			s := &rc.Status
			s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = o.Counts.Replicas, o.Counts.FullyLabeled, o.Counts.Ready, o.Counts.Available
			s.ObservedGeneration = o.Generation
			status.SetFailure(&s.Conditions, o.Failure())
			return nil
		},
		StatusOf: func(rc *corev1.ReplicationController) any { return &rc.Status },
	}
}

// counting returns the rules that say which children count as active, ready and available in the status.
func counting[C Object](rules replicas.Rules[C]) status.Rules[C] {
	complete := rules.Complete()
	return status.Rules[C]{Active: complete.Active, Ready: complete.Ready, Available: complete.Available}
}

// terminatingBy returns a function that reports whether a child counts as terminating. A terminating
// child is being deleted and is not active. A terminating pod must also not be finished (T8).
func terminatingBy[C Object](active func(C) bool) func(C) bool {
	terminating := func(c C) bool { return c.GetDeletionTimestamp() != nil && !active(c) }
	if pods, ok := any(status.IsPodTerminating).(func(C) bool); ok {
		return func(c C) bool { return pods(c) && !active(c) }
	}
	return terminating
}

// lingers reports whether a child still exists after the server has accepted its deletion. A child
// lingers if it has finalizers, or if it is a pod that a node must stop first.
func lingers(c Object) bool {
	if pod, ok := c.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		grace := pod.Spec.TerminationGracePeriodSeconds
		return grace == nil || *grace > 0 || len(pod.Finalizers) > 0
	}
	return len(c.GetFinalizers()) > 0
}

// vanishes reports whether the server removes a child immediately after marking the child for deletion.
func vanishes[C Object](c C) bool {
	grace := c.GetDeletionGracePeriodSeconds()
	return c.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(c.GetFinalizers()) == 0
}

// patchTypeFor returns the requested type. If no type is requested, patchTypeFor returns strategic for
// children that Kubernetes itself serves. Custom resources support only merge patches.
func patchTypeFor(asked types.PatchType, child schema.GroupVersionKind) types.PatchType {
	switch {
	case asked != "":
		return asked
	case !strings.Contains(child.Group, ".") || strings.HasSuffix(child.Group, ".k8s.io"):
		return types.StrategicMergePatchType
	}
	return types.MergePatchType
}
