// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
)

// Rules define how the state of a child is interpreted. For pods, the zero Rules mean the rules of
// Kubernetes. With the zero Rules, a child that is not a pod is never ready, and is active until it
// has a deletionTimestamp. The functions must not modify the child.
type Rules[T metav1.Object] struct {
	// Active reports whether a child counts as a replica. Children that are not active are ignored.
	// If Active is nil, a child is active unless it is being deleted or is a finished pod.
	//
	// Active may also return true for a child that is being deleted. In this case, a plan does not
	// delete the child again, and the child is replaced only after it is gone. When a plan decides
	// how many children to delete, the plan does not count children that are already being deleted.
	Active func(T) bool
	// Ready reports whether an active child is ready to do its work. If Ready is nil, a pod is
	// ready if its Ready condition is True, and any other child is never ready.
	Ready func(T) bool
	// MustGo reports whether a child must be deleted even if there are not too many children.
	// Children that must go are deleted before all others, regardless of Order. If there are too
	// many children, the children that must go count as surplus. For example, if Replicas is 3 and
	// one of 5 children must go, 2 children are deleted. While the number of existing children is
	// below Spec.Replicas, children that must go are kept. So if a full quota or a webhook prevents
	// the creation of a missing child, the owner does not lose another child. A plan that deletes
	// children creates no children, so a later plan creates the replacement. Spec.MaxUnavailable
	// and Spec.MaxSurge change this behavior, as described in their comment. If MustGo is nil, no
	// child is required to go.
	MustGo func(T) bool
	// MustStay reports whether a child must not be deleted. MustStay takes precedence over MustGo.
	// A child that must stay counts as a replica like any other child. If MustStay is nil, every
	// child may be deleted.
	MustStay func(T) bool
	// Discard reports whether a child has ended and only needs to be cleaned up. Discard takes
	// precedence over Active, so a discarded child does not count as a replica. The plan that
	// replaces the child also deletes it; see Scale.Discard. If MustStay returns true for a child
	// that must be discarded, Manage returns an error. If Discard is nil, only children for which
	// Failed returns true are discarded.
	Discard func(T) bool
	// Failed reports whether a child has ended because it failed. A failed child is discarded, as
	// if Discard had returned true for it. A Controller also delays the replacement of a failed
	// child; see controller.Options.BackOffFailed. If Failed is nil, no child counts as failed.
	Failed func(T) bool
	// ReadyWithin is the maximum time that a child may be unready. A child that has been unready
	// for at least this time must go, as if MustGo had returned true for it. If ReadyWithin is 0,
	// there is no limit. ReadyWithin is refused if it is negative or below Spec.MinReadySeconds.
	// For children that are not pods, ReadyWithin is also refused if Ready is nil.
	ReadyWithin time.Duration
	// NotReadySince returns the time since which a child has been unready. The zero time means that
	// this time is unknown, and that ReadyWithin does not apply to the child. If neither
	// NotReadySince nor Ready is set, the time comes from the Ready condition of the pod. If the
	// pod has no Ready condition, its creationTimestamp is used. If you set Ready and ReadyWithin
	// without using a Controller, also set NotReadySince.
	//
	// Another clock may have written these times. A Controller therefore counts from the moment at
	// which it first observed the child as unready with this time. If NotReadySince returns a later
	// time than this moment, the Controller counts from the later time. If NotReadySince returns
	// another time than before, the Controller starts to count again. It also does so when its
	// process restarts.
	NotReadySince func(T) time.Time
	// Leaving reports whether a child bears the mark of Spec.Retire, or is on its way out in some other way than by a
	// deletionTimestamp. A leaving child counts like one that is being deleted: if Active is nil, it is not active, so
	// it is replaced at once. If Active returns true for it, it keeps its place until it is gone. Discard and Failed
	// take precedence over Leaving, so they decide when a leaving child is deleted. If Leaving is nil, only children
	// with a deletionTimestamp are leaving.
	Leaving func(T) bool
	// Available reports whether a child is available. A rollout with Spec.MaxUnavailable or
	// Spec.MaxSurge uses this result. If Available is nil, a child is available if it has been
	// ready for at least Spec.MinReadySeconds. If Ready is also nil, the Ready condition of a pod
	// shows since when the pod has been ready. If Ready is set, a Controller remembers since when
	// each child has been ready. If you set Ready and Spec.MinReadySeconds without using a
	// Controller, also set Available.
	Available func(T) bool
	// Order decides which child is deleted first. For pods, the zero Order is Kubernetes' own
	// order, even if Ready is set. For other children, the zero Order deletes the newest child
	// first. If Ready is set for other children, the zero Order deletes all unready children before
	// the ready ones.
	Order podrank.Order[T]
}

var podRules = Rules[*corev1.Pod]{Active: pod.IsActive, Ready: pod.IsReady, NotReadySince: pod.NotReadySince}

// Complete returns a copy of the rules with the defaults of Active, Ready, NotReadySince, Leaving and Order
// filled in. In the result, Active returns false for children to discard, and Leaving returns true for children with a
// deletionTimestamp. If MustGo, MustStay,
// Discard, Failed or Available is nil, it stays nil. For children that are not pods, Ready and
// NotReadySince have no defaults and also stay nil. For pods, the zero Order stays zero, because it
// already means Kubernetes' own order.
func (r Rules[T]) Complete() Rules[T] {
	leaving := r.Leaving
	r.Active, r.Leaving = r.active(), func(child T) bool { return isDeleted(child) || leaving != nil && leaving(child) }
	pods := rulesOfPods[T]()
	if pods != nil && r.Ready == nil {
		r.Ready = pods.Ready
		if r.NotReadySince == nil {
			r.NotReadySince = pods.NotReadySince
		}
	}
	if pods == nil && len(r.Order.Criteria()) == 0 {
		r.Order = orderFor(r.Ready)
	}
	return r
}

// Ended reports whether a child must be discarded. This is the case if Discard or Failed returns
// true for the child.
func (r *Rules[T]) Ended(child T) bool {
	return r.Discard != nil && r.Discard(child) || r.Failed != nil && r.Failed(child)
}

// NoneEnds reports whether Discard and Failed are both nil.
func (r *Rules[T]) NoneEnds() bool { return r.Discard == nil && r.Failed == nil }

// at returns the rules that apply at the given time. In the returned copy, MustGo also returns true
// for children that have been unready for at least ReadyWithin.
func (r Rules[T]) at(now time.Time) Rules[T] {
	if r.ReadyWithin == 0 {
		return r
	}
	within, named, complete := r.ReadyWithin, r.MustGo, r.Complete()
	r.MustGo = func(child T) bool {
		if named != nil && named(child) {
			return true
		}
		if complete.Ready(child) {
			return false
		}
		since := complete.NotReadySince(child)
		return !since.IsZero() && now.Sub(since) >= within
	}
	return r
}

// active returns the function Active or its default. The returned function always returns
// false for children to discard.
func (r Rules[T]) active() func(T) bool {
	active := r.activeOrDefault()
	if r.NoneEnds() {
		return active
	}
	ends := Rules[T]{Discard: r.Discard, Failed: r.Failed} // copies only two fields, so that r is not allocated on the heap
	return func(child T) bool { return !ends.Ended(child) && active(child) }
}

func (r Rules[T]) activeOrDefault() func(T) bool {
	if r.Active != nil {
		return r.Active
	}
	var active func(T) bool
	if pods := rulesOfPods[T](); pods != nil {
		active = pods.Active
	} else {
		active = isNotDeleted[T]
	}
	leaving := r.Leaving
	if leaving == nil {
		return active
	}
	return func(child T) bool { return active(child) && !leaving(child) }
}

// isLeaving reports whether a child is on its way out.
func (r *Rules[T]) isLeaving(child T) bool {
	return isDeleted(child) || r.Leaving != nil && r.Leaving(child)
}

func (r *Rules[T]) mustStay(child T) bool { return r.MustStay != nil && r.MustStay(child) }

// rulesOfPods returns the default rules for pods, or nil if the children are not pods.
func rulesOfPods[T metav1.Object]() *Rules[T] {
	rules, _ := any(&podRules).(*Rules[T])
	return rules
}

func isDeleted[T metav1.Object](child T) bool { return child.GetDeletionTimestamp() != nil }

func isNotDeleted[T metav1.Object](child T) bool { return !isDeleted(child) }

// orderFor returns the default order for children that are not pods.
func orderFor[T metav1.Object](ready func(T) bool) podrank.Order[T] {
	newest := podrank.Newest[T]()
	if ready == nil {
		return podrank.Must(podrank.NewOrder(newest))
	}
	notReady := podrank.First("not ready", func(child T) bool { return !ready(child) })
	return podrank.Must(podrank.NewOrder(notReady, newest))
}
