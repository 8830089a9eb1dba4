// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
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
	// nothing is created; and of BeforeScale: then nothing is created or deleted.
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

	// BeforeScale is called before anything is created or deleted, with the active
	// children and the plan, and returns what shall be done now. It may leave out
	// deletions and discards by returning fewer, and creations by returning fewer Names or a
	// lower Create. If there are more Names than Create, the last ones are left out. If it
	// adds or changes any, the pass returns an error and does nothing. The lists belong to
	// BeforeScale, which may change them in place.
	//
	// What was left out has its turn in the next pass: when a child or the owner
	// changes, or after the time again, if that is earlier. If again is 0, no pass
	// follows because of what was left out; negative is refused. If BeforeScale
	// returns an error, nothing is created or deleted. Sync returns the error, and
	// again, if it is positive, in place of your rate limiter's delay.
	//
	// If children are to be deleted, the Controller has read the owner from the server before it
	// calls BeforeScale: so what BeforeScale does for them is done for an owner that is current.
	//
	// BeforeScale may make calls with ctx, which is that of Sync: only this owner and
	// one worker wait for them. All other functions of a Kind must not block.
	//
	// If a Conflict shows that the view was old, BeforeScale is called again with the
	// deletions that are left and the active children of a live list. A child whose
	// deletion had no answer is not among the active ones, unless it is to be deleted
	// again.
	//
	// If children that must go stay, because their deletions were left out, failed
	// or are held, and others are missing, BeforeScale is called once more, with
	// the creations. If it is nil, the whole plan is carried out.
	BeforeScale func(ctx context.Context, owner O, active []C, scale replicas.Scale[C]) (now replicas.Scale[C], again time.Duration, err error)

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

// ReplicaSets returns the Kind of ReplicaSets. You may change it: set BeforeScale
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
	return status.Rules[C]{Active: complete.Active, Ready: complete.Ready}
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
