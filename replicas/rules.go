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

// Rules say what the state of a child means. The zero Rules are Kubernetes' for pods. With the zero
// Rules, a child of any other type is active unless it has a deletionTimestamp, and is never ready.
// The functions must not change the child.
type Rules[T metav1.Object] struct {
	// Active reports whether a child counts as a replica. Children that are not active are ignored.
	// If Active is nil, a pod is active if it is neither finished nor being deleted. Any other
	// child is active if it is not being deleted.
	//
	// A child that is active while it is being deleted is not deleted again, and no child is
	// created in its place until it is gone. It is no longer one too many, so no other child is
	// deleted because of it.
	Active func(T) bool
	// Ready reports whether an active child does its work. A pod that is not ready may be deleted
	// even if it has changed since; see Deletion. If Ready is nil, the Ready condition of a pod
	// decides, and no other child is ready.
	Ready func(T) bool
	// MustGo reports whether a child must be deleted, even if there are not too many children. It
	// is deleted before all others, regardless of Order. If there are too many children, it is one
	// of those. For example, with 5 children, 3 wanted and 1 that must go, 2 are deleted. While
	// fewer children than wanted stay, it stays too. So a full quota or a webhook that refuses the
	// missing child does not also cost this one. A plan that deletes creates nothing, so the
	// replacement comes in a later plan. If Spec.MaxUnavailable or Spec.MaxSurge is set, its
	// comment says what happens instead. nil means that no child must go.
	MustGo func(T) bool
	// MustStay reports whether a child may not be deleted. It has priority over MustGo, and the
	// child still counts as a replica. nil means that every child may be deleted.
	MustStay func(T) bool
	// Discard reports whether a child has ended and only has to be cleaned up. It has priority over
	// Active, so the child is no replica. The child is deleted in the plan that replaces it; see
	// Scale.Discard. If such a child must stay, that is an error. nil means that no child is
	// discarded.
	Discard func(T) bool
	// Failed reports whether a child has ended because it failed. The child is discarded, as if
	// Discard named it. A Controller also waits before it replaces the child; see
	// controller.Options.BackOffFailed. nil means that no child has failed.
	Failed func(T) bool
	// ReadyWithin is how long a child may be not ready. A child that has not been ready for that
	// long must go, as if MustGo named it. 0 means no limit. It is refused if it is negative, below
	// Spec.MinReadySeconds, or set without Ready for children that are not pods.
	ReadyWithin time.Duration
	// NotReadySince returns the time since when a child has not been ready. The zero time means
	// that this is not known, and ReadyWithin does not count then. If NotReadySince and Ready are
	// nil, the Ready condition of a pod decides, or its creation if it has no such condition.
	// Otherwise, if NotReadySince is nil, a Controller remembers when it first saw the child not
	// ready. It starts again when its process does. Without a Controller, set NotReadySince if
	// ReadyWithin is set.
	NotReadySince func(T) time.Time
	// Available reports whether a child is available, for Spec.MaxUnavailable. If Available is nil,
	// a ready child is available. If Spec.MinReadySeconds is set, the child must also have been
	// ready for that long. If Ready is nil, the Ready condition of a pod shows this. A Controller
	// remembers it for other children. Without a Controller, set Available then.
	Available func(T) bool
	// Order says which child is deleted first. The zero Order is Kubernetes' for pods. For other
	// children, it means first those that are not ready, if Ready is set, then the newest.
	Order podrank.Order[T]
}

var podRules = Rules[*corev1.Pod]{Active: pod.IsActive, Ready: pod.IsReady, NotReadySince: pod.NotReadySince}

// Complete returns the rules with the defaults of Active, Ready, NotReadySince and Order filled in.
// Active is then false for a child to discard. A nil MustGo, MustStay, Discard or Failed does not
// change. Nor does a nil Ready or NotReadySince of children that are not pods, or the zero Order of
// pods, which is Kubernetes'.
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

// Ended reports whether a child must be discarded, because Discard or Failed names it.
func (r *Rules[T]) Ended(child T) bool {
	return r.Discard != nil && r.Discard(child) || r.Failed != nil && r.Failed(child)
}

// NoneEnds reports whether neither Discard nor Failed can name a child.
func (r *Rules[T]) NoneEnds() bool { return r.Discard == nil && r.Failed == nil }

// at returns the rules at an instant. Their MustGo includes ReadyWithin.
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

// active returns Active or its default, without the children to discard.
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

// rulesOfPods returns the rules of pods. If children are not pods, it returns nil.
func rulesOfPods[T metav1.Object]() *Rules[T] {
	rules, _ := any(&podRules).(*Rules[T])
	return rules
}

func isDeleted[T metav1.Object](child T) bool { return child.GetDeletionTimestamp() != nil }

func isNotDeleted[T metav1.Object](child T) bool { return !isDeleted(child) }

// orderFor returns the order of children that are not pods.
func orderFor[T metav1.Object](ready func(T) bool) podrank.Order[T] {
	newest := podrank.Newest[T]()
	if ready == nil {
		return podrank.Must(podrank.NewOrder(newest))
	}
	notReady := podrank.First("not ready", func(child T) bool { return !ready(child) })
	return podrank.Must(podrank.NewOrder(notReady, newest))
}
