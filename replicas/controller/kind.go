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

// A Kind says all that differs between kinds of owners. O and C are the pointer
// types of owners and children, such as *appsv1.ReplicaSet and *corev1.Pod.
// ReplicaSets and ReplicationControllers return a Kind each. The functions of a
// Kind are called by several goroutines at once. They must not block, and must not
// change what they are given, except where their comments say so.
type Kind[O, C Object] struct {
	// Owner and Child are the kinds of owners and children. Required.
	Owner, Child schema.GroupVersionKind
	// ClusterScoped says that owners are in no namespace. Then children are where
	// Spec.New puts them: in one namespace, in several, or in none. Orphans of
	// all namespaces are adopted, and live lists are of all namespaces. If it is
	// false, an owner and its children are in one namespace. A pass for an owner
	// that is not as ClusterScoped says returns an error, and does nothing.
	ClusterScoped bool

	// Spec returns what an owner wants. The Controller sets Owner, Kind, Now,
	// Names, Pending, PendingFor and, if it is nil, Related. To PendingAdoptions it adds
	// the orphans whose adoption is not decided, and to Taken the names that it knows of
	// if there are Slots. For children that are not pods,
	// New must be set.
	//
	// Return a *replicas.RefusedError if only a change of the owner can help: it is
	// told by one event for each generation of the owner and each text, and nothing is
	// done until the owner changes. Any other error is returned by Sync, which is to be tried
	// again, and told by an event FailedSpec. A RefusedError of New is told in the same way: then
	// nothing is created, or with Slots not that child; and of Prepare: then nothing is created
	// or deleted.
	//
	// The answer must depend on the owner alone. It may depend on the owner's
	// status: if a status that the Controller wrote changes a number, a limit, a
	// time or the selector of the Spec, or what the Rules say about a child,
	// another pass follows. If it changes only New, Template or Order, none does.
	// Required.
	Spec func(owner O) (replicas.Spec[C], error)

	// Status brings the status of owner up to date. owner is a copy; only its
	// status may be changed. Status is called after each pass that could count the
	// children. If the write meets a Conflict, Status is called again with a fresh
	// copy. If Status is nil, no status is written.
	Status func(owner O, outcome Outcome[C]) error
	// StatusOf returns the owner's status, all of it, or a pointer to it. It is what is
	// compared and written, so a part of the status would be written in the place of all. The
	// status is written only if Status has changed it. If StatusOf is nil, whole owners are
	// compared, which takes longer.
	StatusOf func(owner O) any

	// PatchType is the type of the patches that adopt and release: strategic merge
	// patches for kinds that Kubernetes itself serves, merge patches for custom
	// resources. "" chooses by the group of the children: strategic if it is empty,
	// has no dot or ends in ".k8s.io", merge otherwise.
	PatchType types.PatchType

	// Prepare is the author's own step. It is called before anything is created or deleted, and
	// says what of the plan is carried out now. Here an operator makes volume claims, cordons
	// and drains, keeps a quorum, or puts off what it cannot allow yet. If Prepare is nil, the
	// whole plan is carried out.
	//
	// Prepare is called in each pass that knows what is missing and what is too many, also if
	// nothing is. So it can call off what it began: if step.Delete lacks a child that Prepare
	// has cordoned, and step.Later is 0, that child is wanted again. Prepare is not called while
	// the plan waits, or while earlier passes have put off all deletions of a plan. If the plan
	// deletes, the owner was read from the server before, so nothing is done for a victim of an
	// old owner.
	//
	// Prepare takes out of step.Create, step.Delete and step.Discard what must not happen now.
	// It may take out any, and may change all lists in place. If it adds any, that is refused as a
	// wrong spec is, and nothing is done. What it has taken out is in the plan of the next pass. That
	// comes when a child or the owner changes, or after step.Again. An error or a panic is an
	// error of the pass, and nothing is created or deleted; step.Again then takes the place of
	// your rate limiter's delay.
	//
	// Prepare may make calls with ctx, which ends with that of Sync and after PrepareTimeout at
	// the latest. Only this owner and one worker wait for them. All other functions of a Kind
	// must not block.
	//
	// One pass may call Prepare again: with the children of a live list, if a Conflict shows
	// that the view was old; and with the slots that are missing, if children in no wanted slot
	// were to go first and none of them has gone.
	Prepare func(ctx context.Context, owner O, step *Step[C]) error

	// Observe is called at the end of every pass: use it for metrics and logs. It
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
	// them, unless it is to be deleted again. Terminating are the children that are being
	// deleted and are not active. The children are read only.
	Active, Terminating []C
	// Create are the names of the children to create.
	Create []string
	// Delete are the children to delete. Deletion.Replaced separates those that go because of a rule
	// from those that are too many. A child whose deletion an earlier pass has put off is in the
	// list too. Discard are the children to clean up, because they have ended.
	Delete, Discard []replicas.Deletion[C]
	// Later is how much more there is to do than this step has, because of MaxDeletions or
	// BurstReplicas, or because a missing child comes first. If it is 0, Delete has all children
	// that have to go.
	Later int
	// InFlight is how many earlier creations and deletions had no answer and may take effect yet.
	InFlight int
	// Results say what became of all that Prepare has let through. They are given again until
	// Prepare returns no error. A process that ends takes them with it, so what must not be lost
	// also has to follow from the children.
	Results []Result[C]
	// Again is when Prepare wants to be called again if nothing changes. 0 means never; negative
	// is an error. Prepare sets it.
	Again time.Duration
}

// NoneLeft reports whether the owner has no children, and none can appear by an earlier call. An
// owner that is being deleted needs no finalizer then. Pods that have ended and are not to be
// discarded do not count.
func (s *Step[C]) NoneLeft() bool {
	return len(s.Active)+len(s.Terminating)+len(s.Discard)+s.InFlight == 0
}

// A Result says what became of a creation or deletion that Kind.Prepare has let through.
type Result[C Object] struct {
	// Name is the child's. Child is the child as it was created, or as it was before it was
	// deleted; nil if it was not created.
	Name  string
	Child C
	// Deleted says that the child was to be deleted. Otherwise it was to be created.
	Deleted bool
	// Err is why that did not happen; nil if it did. If a call had no answer, it may have taken
	// effect, or may do so yet. The children show that later. ErrNotTried means that no call
	// was made.
	Err error
}

// ErrNotTried is the error of a Result if no call was made: because slow start ended after a failure,
// because a hold or the number of children forbids it, or because a live list has shown that
// the child is no longer the owner's.
var ErrNotTried = errors.New("the pass did not try it")

// PrepareTimeout is how long one call of Kind.Prepare may take, as far as it heeds its context.
const PrepareTimeout = 30 * time.Second

// ReplicaSets returns the Kind of ReplicaSets. You may change it: set Prepare
// and Observe, or wrap Spec to set a burst or an order.
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

// counting returns what the state of a child means for the counts.
func counting[C Object](rules replicas.Rules[C]) status.Rules[C] {
	complete := rules.Complete()
	return status.Rules[C]{Active: complete.Active, Ready: complete.Ready, Available: complete.Available}
}

// terminatingBy returns which children count as terminating: those being deleted
// that are not active; of pods, those that are not finished either (T8).
func terminatingBy[C Object](active func(C) bool) func(C) bool {
	terminating := func(c C) bool { return c.GetDeletionTimestamp() != nil && !active(c) }
	if pods, ok := any(status.IsPodTerminating).(func(C) bool); ok {
		return func(c C) bool { return pods(c) && !active(c) }
	}
	return terminating
}

// lingers reports whether a child is still there when its deletion was accepted: of
// pods, those that a node must stop first.
func lingers(c Object) bool {
	if pod, ok := c.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		grace := pod.Spec.TerminationGracePeriodSeconds
		return grace == nil || *grace > 0 || len(pod.Finalizers) > 0
	}
	return len(c.GetFinalizers()) > 0
}

// vanishes reports whether the server removes a child that it marked for deletion
// just before, with nothing to wait for.
func vanishes[C Object](c C) bool {
	grace := c.GetDeletionGracePeriodSeconds()
	return c.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(c.GetFinalizers()) == 0
}

// patchTypeFor is strategic for children that Kubernetes itself serves: custom
// resources know merge patches only.
func patchTypeFor(asked types.PatchType, child schema.GroupVersionKind) types.PatchType {
	switch {
	case asked != "":
		return asked
	case !strings.Contains(child.Group, ".") || strings.HasSuffix(child.Group, ".k8s.io"):
		return types.StrategicMergePatchType
	}
	return types.MergePatchType
}
