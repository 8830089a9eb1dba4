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

// A Kind has everything that differs between kinds of owners. O and C are the pointer
// types of owners and children, such as *appsv1.ReplicaSet and *corev1.Pod. The functions
// ReplicaSets and ReplicationControllers return a Kind each. The functions of a Kind are
// called by several goroutines at once. They must not block or change their arguments,
// except where their comments say so.
type Kind[O, C Object] struct {
	// Owner and Child are the kinds of owners and children. Required.
	Owner, Child schema.GroupVersionKind
	// ClusterScoped says that owners are in no namespace. Their children are where
	// Spec.New puts them, in one namespace, in several, or in none. Orphans of
	// all namespaces are adopted, and live lists are of all namespaces. If it is
	// false, an owner and its children are in one namespace. If an owner does not fit
	// ClusterScoped, its pass returns an error and does nothing.
	ClusterScoped bool

	// Spec returns what an owner wants. The Controller sets Owner, Kind, Now,
	// Names, Pending, PendingFor and, if it is nil, Related. The Controller adds to
	// PendingAdoptions the orphans whose adoption is not decided. If there are Slots,
	// it adds to Taken the names that it knows of. For children that are not pods,
	// New must be set.
	//
	// If only a change of the owner can help, return a *replicas.RefusedError. Then there is one
	// event for each generation of the owner and each text, and nothing is done until the owner
	// changes. New and Prepare may also return a RefusedError, with such an event. If New does,
	// nothing is created or, with Slots, only that child is left out. If Prepare does, nothing is
	// created or deleted. For any other error of Spec there is an event FailedSpec, and Sync returns
	// the error, so that the pass is tried again.
	//
	// The answer must depend on the owner alone. It may depend on the owner's status.
	// If a status that the Controller wrote changes a number, a limit, a time or the
	// selector of the Spec, or what the Rules say about a child, another pass follows.
	// If it changes only New, Template or Order, none follows. Required.
	Spec func(owner O) (replicas.Spec[C], error)

	// Status brings the status of owner up to date. owner is a copy, and only its
	// status may be changed. Status is called after each pass that could count the
	// children. If the write meets a Conflict, Status is called again with a fresh
	// copy. If Status is nil, no status is written.
	Status func(owner O, outcome Outcome[C]) error
	// StatusOf returns the owner's whole status, or a pointer to it. The Controller compares
	// and writes this value, so a part of the status would replace the whole. The status is
	// written only if Status has changed it. If StatusOf is nil, whole owners are compared,
	// which takes longer.
	StatusOf func(owner O) any

	// PatchType is the type of the patches that adopt and release. Use strategic merge
	// patches for kinds that Kubernetes itself serves, and merge patches for custom
	// resources. "" chooses by the group of the children. It means strategic if the group
	// is empty, has no dot or ends in ".k8s.io", and merge otherwise.
	PatchType types.PatchType

	// Prepare is the author's own step. It is called before anything is created or deleted,
	// and chooses which part of the plan is carried out now. In Prepare an operator makes
	// volume claims, cordons and drains, keeps a quorum, or puts off what it cannot allow yet.
	// If Prepare is nil, the whole plan is carried out.
	//
	// Prepare is called in each pass that knows which children are missing and which are too
	// many, even if none are. So Prepare can call off what it began. For example, if
	// step.Delete lacks a child that Prepare has cordoned, and step.Later is 0, that child is
	// wanted again. Prepare is not called while the plan waits, or while earlier passes have
	// put off all deletions of a plan. If the plan deletes, the owner was read from the server
	// before, so Prepare does nothing for a victim of an old owner.
	//
	// Prepare removes from step.Create, step.Delete and step.Discard what must not happen now. It
	// may remove any entry, and may change all lists in place. If it adds an entry, the Controller
	// sends the event InvalidStep and does nothing. Removed entries are in the plan of the next
	// pass, which comes when a child or the owner changes, or after step.Again. An error or a panic
	// is an error of the pass, and nothing is created or deleted. step.Again then replaces your rate
	// limiter's delay.
	//
	// Prepare may make calls with ctx, which ends with the ctx of Sync and after PrepareTimeout
	// at the latest. Only this owner and one worker wait for them. All other functions of a
	// Kind must not block.
	//
	// One pass may call Prepare again in two cases. If a Conflict shows that the view was old,
	// Prepare gets the children of a live list. If children in no wanted slot should go first
	// and none of them has gone, Prepare gets the missing slots.
	Prepare func(ctx context.Context, owner O, step *Step[C]) error

	// Observe is called at the end of every pass. Use it for metrics and logs. It
	// may be nil.
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

// A Step is what a pass is about to do, for Kind.Prepare.
type Step[C Object] struct {
	// Now is the instant of the pass.
	Now time.Time
	// Active are the owner's active children. A child whose deletion had no answer is not among
	// them, unless the pass deletes it again. Terminating are the children that are being
	// deleted and are not active. The children are read only.
	Active, Terminating []C
	// Create are the names of the children to create.
	Create []string
	// Delete are the children to delete, also those whose deletion an earlier pass has put off.
	// Deletion.Replaced is set for children that go because of a rule, not for those that are
	// too many. Discard are the children to clean up because they have ended.
	Delete, Discard []replicas.Deletion[C]
	// Later is how much the step leaves to later passes because of MaxDeletions or
	// BurstReplicas, or because a missing child comes first. If it is 0, Delete has all
	// children that have to go.
	Later int
	// InFlight is how many earlier creations and deletions had no answer and may still take effect.
	InFlight int
	// Results are the results of everything that Prepare has let through. They are given
	// again until Prepare returns no error. They are lost when the process ends, so
	// anything that must not be lost must also follow from the children.
	Results []Result[C]
	// Again is when Prepare wants the next call if nothing changes. 0 means never; negative
	// is an error. Prepare sets it.
	Again time.Duration
}

// NoneLeft reports whether the owner has no children, and no earlier call can still create one.
// An owner that is being deleted then needs no finalizer. Pods that have ended and are not
// discarded do not count.
func (s *Step[C]) NoneLeft() bool {
	return len(s.Active)+len(s.Terminating)+len(s.Discard)+s.InFlight == 0
}

// A Result is the result of a creation or deletion that Kind.Prepare has let through.
type Result[C Object] struct {
	// Name is the child's name. Child is the child as created, or as it was before its
	// deletion; nil if it was not created.
	Name  string
	Child C
	// Deleted says that the Result is of a deletion. Otherwise it is of a creation.
	Deleted bool
	// Err is why the call failed; nil if it succeeded. If a call had no answer, it may have
	// taken effect, or may still do so. The children show that later. ErrNotTried means that
	// no call was made.
	Err error
}

// ErrNotTried is the error of a Result if no call was made. Either slow start ended after a failure,
// or a hold or the number of children forbids the call, or a live list has shown that the child no
// longer belongs to the owner.
var ErrNotTried = errors.New("the pass did not try it")

// PrepareTimeout is how long one call of Kind.Prepare may take if it heeds its context.
const PrepareTimeout = 30 * time.Second

// ReplicaSets returns the Kind of ReplicaSets. You may change it, for example set
// Prepare and Observe, or wrap Spec to set a burst or an order.
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

// ReplicationControllers returns the Kind of ReplicationControllers, as ReplicaSets
// does for ReplicaSets. Their status has no terminatingReplicas.
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

// counting returns the rules by which children are counted.
func counting[C Object](rules replicas.Rules[C]) status.Rules[C] {
	complete := rules.Complete()
	return status.Rules[C]{Active: complete.Active, Ready: complete.Ready, Available: complete.Available}
}

// terminatingBy returns a function that reports whether a child counts as terminating.
// Such a child is being deleted and not active. A pod must also not be finished (T8).
func terminatingBy[C Object](active func(C) bool) func(C) bool {
	terminating := func(c C) bool { return c.GetDeletionTimestamp() != nil && !active(c) }
	if pods, ok := any(status.IsPodTerminating).(func(C) bool); ok {
		return func(c C) bool { return pods(c) && !active(c) }
	}
	return terminating
}

// lingers reports whether a child still exists after its deletion was accepted, because
// it has finalizers or is a pod that a node must stop first.
func lingers(c Object) bool {
	if pod, ok := c.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		grace := pod.Spec.TerminationGracePeriodSeconds
		return grace == nil || *grace > 0 || len(pod.Finalizers) > 0
	}
	return len(c.GetFinalizers()) > 0
}

// vanishes reports whether the server removes a child without waiting, just after it
// marked the child for deletion.
func vanishes[C Object](c C) bool {
	grace := c.GetDeletionGracePeriodSeconds()
	return c.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(c.GetFinalizers()) == 0
}

// patchTypeFor returns strategic for children that Kubernetes itself serves, because
// custom resources support only merge patches.
func patchTypeFor(asked types.PatchType, child schema.GroupVersionKind) types.PatchType {
	switch {
	case asked != "":
		return asked
	case !strings.Contains(child.Group, ".") || strings.HasSuffix(child.Group, ".k8s.io"):
		return types.StrategicMergePatchType
	}
	return types.MergePatchType
}
