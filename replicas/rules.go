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

// Rules say what the state of a child means. For pods, the zero Rules are those of Kubernetes. With
// the zero Rules, a child that is not a pod is active unless it has a deletionTimestamp, and it is
// never ready. The functions must not change the child.
type Rules[T metav1.Object] struct {
	// Active reports whether a child counts as a replica. Children that are not active are ignored.
	// If Active is nil, a pod is active unless it is finished or being deleted. If Active is nil, a
	// child that is not a pod is active unless it is being deleted.
	//
	// Active may also return true for a child that is being deleted. Such a child is not deleted
	// again, and its replacement is created only after the child is gone. Such a child does not
	// count as surplus, so no other child is deleted because of it.
	Active func(T) bool
	// Ready reports whether an active child does its work. A pod that is not ready may be deleted
	// even if the pod has changed since the plan was made; see Deletion. If Ready is nil, the Ready
	// condition of a pod decides, and a child that is not a pod is never ready.
	Ready func(T) bool
	// MustGo reports whether a child must be deleted, even if there are not too many children.
	// Children that must go are deleted before all others, regardless of Order. If there are too
	// many children, a child that must go is one of the surplus. For example, with 5 children, 3
	// wanted and 1 that must go, 2 are deleted. While fewer children exist than are wanted, a child
	// that must go stays. So if a full quota or a webhook prevents the creation of a missing child,
	// the owner does not lose another child. A plan that deletes children creates none, so a later
	// plan creates the replacement. If Spec.MaxUnavailable or Spec.MaxSurge is set, the comment on
	// these fields says what happens instead. If MustGo is nil, no child must go.
	MustGo func(T) bool
	// MustStay reports whether a child must not be deleted. MustStay has priority over MustGo, and
	// a child that must stay still counts as a replica. If MustStay is nil, every child may be
	// deleted.
	MustStay func(T) bool
	// Discard reports whether a child has ended and only needs to be cleaned up. Discard has
	// priority over Active, so such a child does not count as a replica. The plan that replaces the
	// child also deletes it; see Scale.Discard. If MustStay names a child that must be discarded,
	// Manage returns an error. If Discard is nil, only children that Failed names are discarded.
	Discard func(T) bool
	// Failed reports whether a child has ended because it failed. A failed child is discarded, as
	// if Discard named it. A Controller also waits before it replaces the child; see
	// controller.Options.BackOffFailed. If Failed is nil, no child counts as failed.
	Failed func(T) bool
	// ReadyWithin is the time within which a child must become ready. A child that has not been
	// ready for that long must go, as if MustGo named it. 0 means no limit. A ReadyWithin that is
	// negative or below Spec.MinReadySeconds is refused. For children that are not pods,
	// ReadyWithin is also refused if Ready is nil.
	ReadyWithin time.Duration
	// NotReadySince returns the time since which a child has not been ready. If NotReadySince
	// returns the zero time, the time is unknown, and ReadyWithin does not apply to the child. If
	// NotReadySince and Ready are nil, the time comes from the Ready condition of the pod. If the
	// pod has no such condition, the time is the pod's creationTimestamp. If only NotReadySince is
	// nil, a Controller remembers when it first saw that the child was not ready. The Controller
	// forgets these times when its process restarts. Without a Controller, set NotReadySince if
	// both Ready and ReadyWithin are set.
	NotReadySince func(T) time.Time
	// Available reports whether a child is available, as Spec.MaxUnavailable and Spec.MaxSurge
	// count it. If Available is nil, a child is available if it has been ready for at least
	// Spec.MinReadySeconds. If Ready is nil, the Ready condition of a pod shows since when the pod
	// has been ready. If Ready is set, a Controller remembers since when each child has been ready.
	// Without a Controller, set Available if both Ready and Spec.MinReadySeconds are set.
	Available func(T) bool
	// Order says which child is deleted first. For pods, the zero Order is that of Kubernetes, even
	// if Ready is set. For other children, the zero Order means that the newest child is deleted
	// first. If Ready is set for these other children, those that are not ready are deleted before
	// all ready ones.
	Order podrank.Order[T]
}

var podRules = Rules[*corev1.Pod]{Active: pod.IsActive, Ready: pod.IsReady, NotReadySince: pod.NotReadySince}

// Complete returns the rules with the defaults of Active, Ready, NotReadySince and Order filled in.
// The Active function of the result is false for a child to discard. A nil MustGo, MustStay,
// Discard, Failed or Available stays nil. For children that are not pods, Ready and NotReadySince
// have no defaults and also stay nil. For pods, the zero Order stays zero, because it already means
// the order of Kubernetes.
func (r Rules[T]) Complete() Rules[T] {
	r.Active = r.active()
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

// Ended reports whether a child must be discarded because Discard or Failed names it.
func (r *Rules[T]) Ended(child T) bool {
	return r.Discard != nil && r.Discard(child) || r.Failed != nil && r.Failed(child)
}

// NoneEnds reports whether Discard and Failed are both nil.
func (r *Rules[T]) NoneEnds() bool { return r.Discard == nil && r.Failed == nil }

// at returns the rules for the time now. Their MustGo also names children that have not been ready
// for ReadyWithin.
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

// active returns Active or its default. The returned function is false for children to discard.
func (r Rules[T]) active() func(T) bool {
	active := r.activeOrDefault()
	if r.NoneEnds() {
		return active
	}
	ends := Rules[T]{Discard: r.Discard, Failed: r.Failed} // a copy of two fields, so that r needs no allocation
	return func(child T) bool { return !ends.Ended(child) && active(child) }
}

func (r Rules[T]) activeOrDefault() func(T) bool {
	if r.Active != nil {
		return r.Active
	}
	if pods := rulesOfPods[T](); pods != nil {
		return pods.Active
	}
	return isNotDeleted[T]
}

// rulesOfPods returns the rules of pods. If children are not pods, it returns nil.
func rulesOfPods[T metav1.Object]() *Rules[T] {
	rules, _ := any(&podRules).(*Rules[T])
	return rules
}

func isDeleted[T metav1.Object](child T) bool { return child.GetDeletionTimestamp() != nil }

func isNotDeleted[T metav1.Object](child T) bool { return !isDeleted(child) }

// orderFor returns the default order of children that are not pods.
func orderFor[T metav1.Object](ready func(T) bool) podrank.Order[T] {
	newest := podrank.Newest[T]()
	if ready == nil {
		return podrank.Must(podrank.NewOrder(newest))
	}
	notReady := podrank.First("not ready", func(child T) bool { return !ready(child) })
	return podrank.Must(podrank.NewOrder(notReady, newest))
}
