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

// Rules say what the state of a child means. The zero Rules are Kubernetes' for
// pods. By the zero Rules a child of any other type is active unless it has a
// deletionTimestamp, and never ready. The functions must not change the child.
type Rules[T metav1.Object] struct {
	// Active reports whether a child counts as a replica. Children that are not
	// active are ignored. If Active is nil, a pod is active if it is neither
	// finished nor being deleted, and any other child if it is not being deleted.
	//
	// A child that is active although it is being deleted is not deleted again, and
	// none is created in its place before it is gone. It is no longer one too many:
	// no other child is deleted because of it.
	Active func(T) bool
	// Ready reports whether an active child does its work. A pod that is not
	// ready may be deleted though it has changed since; see Deletion. If Ready is
	// nil, the Ready condition of a pod decides, and no other child is ready.
	Ready func(T) bool
	// MustGo reports whether a child has to go, even if there are not too many
	// children. It goes before all others, whatever the order says. If there are too
	// many, it is one of those: with 5 children, 3 wanted and 1 that has to go, 2 are
	// deleted. While fewer children stay than are wanted, it stays too, so that a full quota or a
	// webhook that refuses the missing one does not cost this one as well. A plan that deletes creates
	// nothing, so what replaces the child comes in a later plan. With Spec.MaxUnavailable or
	// Spec.MaxSurge all of this is as it is said there. nil means that no child has
	// to go.
	MustGo func(T) bool
	// MustStay reports whether a child may not be deleted. It beats MustGo, and the
	// child still counts as a replica. nil means that every child may be deleted.
	MustStay func(T) bool
	// Discard reports whether a child has ended, and only has to be cleaned up. It beats
	// Active, so the child is no replica. It is deleted in the plan that replaces it; see
	// Scale.Discard. It is an error if such a child must stay. nil means that no child is
	// discarded.
	Discard func(T) bool
	// Failed reports whether a child has ended because it failed. It is discarded, as if
	// Discard named it. A Controller also waits before it replaces such a child; see
	// controller.Options.BackOffFailed. nil means that no child has failed.
	Failed func(T) bool
	// ReadyWithin is for how long a child may be not ready. A child that has not been ready
	// for so long must go, as if MustGo named it. 0 means any time. It is refused if it is
	// negative, below Spec.MinReadySeconds, or set without Ready for children that are not pods.
	ReadyWithin time.Duration
	// NotReadySince returns since when a child that is not ready has been so. The zero time
	// means that this is not known, and ReadyWithin does not count then. If NotReadySince and
	// Ready are nil, the Ready condition of a pod tells, or its creation if it has no such
	// condition. Otherwise, if NotReadySince is nil, a Controller remembers when it first saw the
	// child not ready, and begins anew when its process does. Without a Controller, set it if
	// ReadyWithin is set.
	NotReadySince func(T) time.Time
	// Available reports whether a child is available, for Spec.MaxUnavailable. If it is nil, a child
	// is available that is ready. If Spec.MinReadySeconds is set, it must have been ready for so
	// long: a pod tells it if Ready is nil, and of other children a Controller remembers it. Without
	// a Controller, set Available then.
	Available func(T) bool
	// Order says which child goes first. The zero Order is Kubernetes' for pods.
	// For other children it means: first those that are not ready, if Ready is set,
	// then the newest.
	Order podrank.Order[T]
}

var podRules = Rules[*corev1.Pod]{Active: pod.IsActive, Ready: pod.IsReady, NotReadySince: pod.NotReadySince}

// Complete returns the rules with the defaults of Active, Ready, NotReadySince and Order
// filled in. Active is then false for a child to discard. What stays as it is: a nil MustGo,
// MustStay, Discard or Failed, a nil Ready or NotReadySince of children that are not pods, and
// the zero Order of pods, which is Kubernetes'.
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

// Ended reports whether a child is to be discarded, because Discard or Failed names it.
func (r *Rules[T]) Ended(child T) bool {
	return r.Discard != nil && r.Discard(child) || r.Failed != nil && r.Failed(child)
}

// NoneEnds reports whether neither Discard nor Failed can name a child.
func (r *Rules[T]) NoneEnds() bool { return r.Discard == nil && r.Failed == nil }

// at returns the rules at an instant, at which ReadyWithin is a part of MustGo.
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

// active returns Active, filled in, without the children to discard.
func (r Rules[T]) active() func(T) bool {
	active := r.activeOrDefault()
	if r.NoneEnds() {
		return active
	}
	ends := Rules[T]{Discard: r.Discard, Failed: r.Failed} // not all of r, so that r needs no allocation
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

// rulesOfPods returns the rules of pods if children are pods, else nil.
func rulesOfPods[T metav1.Object]() *Rules[T] {
	rules, _ := any(&podRules).(*Rules[T])
	return rules
}

func isDeleted[T metav1.Object](child T) bool { return child.GetDeletionTimestamp() != nil }

func isNotDeleted[T metav1.Object](child T) bool { return !isDeleted(child) }

// orderFor returns the order of children that are no pods.
func orderFor[T metav1.Object](ready func(T) bool) podrank.Order[T] {
	newest := podrank.Newest[T]()
	if ready == nil {
		return podrank.Must(podrank.NewOrder(newest))
	}
	notReady := podrank.First("not ready", func(child T) bool { return !ready(child) })
	return podrank.Must(podrank.NewOrder(notReady, newest))
}
