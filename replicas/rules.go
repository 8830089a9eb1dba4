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

// Rules define how the state of a child is interpreted. For pods, the zero Rules are those of Kubernetes. For other
// children they mean that a child is never ready, and is active until it has a deletionTimestamp. The functions must
// not modify the child.
type Rules[T metav1.Object] struct {
	// Active reports whether a child counts as a replica. Others are ignored. If Active is nil, a child is active
	// unless it is being deleted or leaving, or is a finished pod.
	//
	// Active may also return true for a child that is being deleted. The child then keeps its place until it is gone,
	// and is not deleted again. When a plan decides how many children to delete, it does not count.
	Active func(T) bool
	// Ready reports whether an active child is ready to do its work. If it is nil, a pod is ready if its Ready
	// condition is True, and any other child is never ready.
	Ready func(T) bool
	// MustGo reports whether a child must be deleted even if there are not too many children. If it is nil, none must.
	// Children that must go are deleted before all others, regardless of Order, and of too many children they are the
	// surplus: if Replicas is 3 and one of 5 children must go, 2 children are deleted. While fewer than Spec.Replicas
	// exist, they are kept, so an owner whose missing child cannot be created, because of a full quota or a webhook,
	// does not lose another one. The plan that deletes them creates no replacements, so a later plan does.
	// Spec.MaxUnavailable and Spec.MaxSurge change this, as described in their comment.
	MustGo func(T) bool
	// MustStay reports whether a child must not be deleted, asked to leave, or changed unless the Change is Free. It takes
	// precedence over MustGo. Such a child counts as a replica like any other. If MustStay is nil, every child may be
	// deleted.
	MustStay func(T) bool
	// Discard reports whether a child has ended and only needs to be cleaned up. It takes precedence over Active, so
	// the child does not count as a replica, and the plan that replaces it also deletes it; see Scale.Discard. One that
	// must stay is deleted when it no longer must, and keeps its slot until then. If Discard is nil, only children for
	// which Failed returns true are discarded.
	Discard func(T) bool
	// Failed reports whether a child has ended because it failed. The child is discarded, as if Discard had returned
	// true for it, and a Controller delays its replacement; see controller.Options.BackOffFailed. If Failed is nil, no
	// child counts as failed.
	Failed func(T) bool
	// ReadyWithin is the maximum time that a child may be unready, and 0 means no limit. A child that has been unready
	// for at least this time must go, as if MustGo had returned true for it. ReadyWithin is refused if it is negative
	// or below Spec.MinReadySeconds, and for children that are not pods, if Ready is nil.
	ReadyWithin time.Duration
	// NotReadySince returns the time since which a child has been unready, or the zero time if that is unknown, so
	// that ReadyWithin does not apply to the child. If neither NotReadySince nor Ready is set, the time comes from the Ready
	// condition of the pod, or without one, from its creationTimestamp. If you set Ready and ReadyWithin without using
	// a Controller, also set NotReadySince.
	//
	// Another clock may have written these times. A Controller therefore counts from the moment at which it first
	// observed the child as unready with this time, or from the time itself if that is later. It starts to count again
	// if NotReadySince returns another time than before, and when its process restarts.
	NotReadySince func(T) time.Time
	// Leaving reports whether a child bears the mark of Spec.Retire, or is on its way out in some other way than by a
	// deletionTimestamp. A leaving child counts like one that is being deleted: usually it is not active, so it is
	// replaced at once, but if Active returns true for it, it keeps its place until it is gone. Discard and Failed take
	// precedence over Leaving, so they decide when a leaving child is deleted. If Leaving is nil, only children with a
	// deletionTimestamp are leaving.
	Leaving func(T) bool
	// Available reports whether a child is available, which a rollout with Spec.MaxUnavailable or Spec.MaxSurge uses.
	// If it is nil, a child is available if it has been ready for at least Spec.MinReadySeconds: since the time in the
	// Ready condition of a pod, or if Ready is set, since a time that a Controller remembers. If you set Ready and
	// Spec.MinReadySeconds without using a Controller, also set Available.
	Available func(T) bool
	// Order decides which child is deleted first. For pods, the zero Order is Kubernetes' own order, even if Ready is
	// set. For other children, it deletes the newest child first, but if Ready is set, all unready children before the
	// ready ones.
	Order podrank.Order[T]
}

var podRules = Rules[*corev1.Pod]{Active: pod.IsActive, Ready: pod.IsReady, NotReadySince: pod.NotReadySince}

// Complete returns a copy of the rules with the defaults of Active, Ready, NotReadySince, Leaving and Order filled in.
// Its Active returns false for children to discard, and its Leaving returns true for children with a deletionTimestamp.
// Where MustGo, MustStay, Discard, Failed or Available is nil, it stays nil, and so do Ready and NotReadySince for
// children that are not pods, because they have no defaults. For pods, the zero Order stays zero, because it already
// means Kubernetes' own order.
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

// Ended reports whether a child must be discarded, because Discard or Failed returns true for it.
func (r *Rules[T]) Ended(child T) bool {
	return r.Discard != nil && r.Discard(child) || r.Failed != nil && r.Failed(child)
}

// NoneEnds reports whether Discard and Failed are both nil.
func (r *Rules[T]) NoneEnds() bool { return r.Discard == nil && r.Failed == nil }

// at returns the rules of the given time, whose MustGo covers children that have been unready for ReadyWithin.
func (r Rules[T]) at(now time.Time) Rules[T] {
	if r.ReadyWithin == 0 {
		return r
	}
	within, mustGo, complete := r.ReadyWithin, r.MustGo, r.Complete()
	r.MustGo = func(child T) bool {
		if mustGo != nil && mustGo(child) {
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

// active returns Active or its default, narrowed to children that must not be discarded.
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
