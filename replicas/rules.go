package replicas

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
)

// Rules say what the state of a child means. The zero Rules are Kubernetes' own
// for pods; any other child is active unless it has a deletionTimestamp, and
// nothing is known about whether it is ready. The functions must not change the
// child.
type Rules[T metav1.Object] struct {
	// Active reports whether a child counts as a replica. The others are passed
	// over. nil: a pod is active if it is neither finished nor being deleted; any
	// other child if it is not being deleted.
	Active func(T) bool
	// Ready reports whether an active child does its work. One that does is not
	// deleted if it has changed since it was read; see Deletion. nil: a pod's
	// Ready condition tells; of any other child nobody knows.
	Ready func(T) bool
	// MustGo reports whether a child has to go whatever the order says, even if
	// there are not too many; it goes before all others. What replaces it, and what
	// is missing beside it, is created in a later plan. If it cannot be deleted now,
	// set MaxDeletions of the Spec to 0: then what is missing is created at once.
	// nil: none has to.
	MustGo func(T) bool
	// MustStay reports whether a child may not be deleted; it beats MustGo. It
	// counts as a replica all the same. nil: each may be.
	MustStay func(T) bool
	// Order says who goes first. The zero Order is Kubernetes' for pods. Of other
	// children, those go first that are not ready, if Ready tells, and then the
	// newest.
	Order podrank.Order[T]
}

var podRules = Rules[*corev1.Pod]{Active: pod.IsActive, Ready: pod.IsReady}

// Complete returns the rules with the zero ones filled in, but for those that may
// be nil.
func (r Rules[T]) Complete() Rules[T] {
	r.Active = r.active()
	pods := rulesOfPods[T]()
	if pods != nil && r.Ready == nil {
		r.Ready = pods.Ready
	}
	if pods == nil && len(r.Order.Criteria()) == 0 {
		r.Order = orderFor(r.Ready)
	}
	return r
}

// active returns Active, filled in.
func (r Rules[T]) active() func(T) bool {
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

func isNotDeleted[T metav1.Object](child T) bool { return child.GetDeletionTimestamp() == nil }

// orderFor returns the order of children that are no pods.
func orderFor[T metav1.Object](ready func(T) bool) podrank.Order[T] {
	newest := podrank.Newest[T]()
	if ready == nil {
		return podrank.Must(podrank.NewOrder(newest))
	}
	notReady := podrank.First("not ready", func(child T) bool { return !ready(child) })
	return podrank.Must(podrank.NewOrder(notReady, newest))
}
