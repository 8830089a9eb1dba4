// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podrank decides which objects to delete first when there are too many. An Order is made
// of criteria, and Kubernetes' order for pods is ready to use. Select chooses the first n objects
// in an Order, and says for each object why it was chosen.
//
// The caller decides which objects are candidates and how many must go, and makes the delete calls.
// Do not pass pods that are finished or being deleted, because such pods are ranked like any other
// pod.
//
//	victims := podrank.Select(active, len(active)-want, podrank.PodOptions{Now: now, Related: related})
//	for _, v := range victims {
//		log.Printf("deleting %s/%s: %s", v.Object.Namespace, v.Object.Name, v.Explain())
//		// delete v.Object, with its UID as a precondition
//	}
//
// If the objects are not pods, or if you want another order, make an Order:
//
//	order, err := podrank.NewOrder(
//		podrank.By("priority", func(m *Machine) int { return m.Priority }),
//		podrank.First("failed", func(m *Machine) bool { return m.Failed }),
//		podrank.Newest[*Machine](),
//	)
//	victims := podrank.Select(machines, n, podrank.Options[*Machine]{Order: order})
//
// In Kubernetes' order, the first of these rules on which two pods differ decides:
//
//   - A pod without a node goes first.
//   - A Pending pod goes before an Unknown pod, and an Unknown pod goes before a Running pod.
//   - A pod that is not ready goes first.
//   - A pod with a lower deletion cost goes first.
//   - A pod with more related pods on its node goes first.
//   - A pod that has been ready for less time goes first.
//   - A pod with more restarts goes first.
//   - A pod with more sidecar restarts goes first.
//   - A younger pod goes first.
//
// Every Order ends with UID, namespace and name. Kubernetes does not compare ages exactly, but
// rounds each age in nanoseconds down to a power of two. So a pod that is six hours old and a pod
// that is eight hours old can count as equally old.
//
// Differs from Kubernetes: the order is total. If two ages round down to the same power of two, the
// next criterion decides. In Kubernetes, the UIDs then decide at once, unless the times are equal.
// Three pods can then form a cycle in which each pod goes before the next, so the victims depend on
// the order of the list. This package computes the power of two with integers. Kubernetes computes
// the power of two with floating point. For ages of more than 6 days, the result in Kubernetes is
// wrong up to 5 ns before a power of two. The result in Kubernetes is also wrong for the longest
// age, which is 292 years.
//
// All functions are pure and change no object. The functions are safe for concurrent use if no
// goroutine changes the objects, and if the functions that you pass are safe for concurrent use.
package podrank

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
)

// Options are the settings of Select, Explain and Check. For pods, the zero Options mean
// Kubernetes' order, but without co-location and with times compared exactly.
type Options[T metav1.Object] struct {
	// Now is the time at which ages are measured. If Now is zero, criteria compare times exactly.
	Now time.Time

	// Related are the objects that criteria such as Colocation and Spread count. The comment on
	// each such criterion says what an empty list means. The objects are not changed.
	Related []T

	// Order decides which objects go first. For pods, the zero Order means Kubernetes(). For other
	// objects, the zero Order has only the criterion Newest.
	Order Order[T]

	// MustGo, if not nil, reports whether an object goes before all others, regardless of the
	// order. MustGo does not change how many objects go.
	MustGo func(T) bool

	// MustStay, if not nil, reports whether an object is never chosen. If MustGo and MustStay both
	// return true, the object stays.
	MustStay func(T) bool
}

// PodOptions are the Options for pods.
type PodOptions = Options[*corev1.Pod]

// criteria returns MustStay and MustGo, if they are set, followed by the criteria of the order.
func (o *Options[T]) criteria(order Order[T]) []Criterion[T] {
	criteria := order.criteria
	if o.MustGo != nil {
		criteria = append([]Criterion[T]{flag(MustGo, "must go", "may stay", o.MustGo)}, criteria...)
	}
	if o.MustStay != nil {
		mayGo := flag(MustStay, "may go", "must stay", func(obj T) bool { return !o.MustStay(obj) })
		mayGo.phrase = "all others must stay"
		criteria = append([]Criterion[T]{mayGo}, criteria...)
	}
	return criteria
}

// Select returns the n objects to delete, in the order in which they go. Each Victim says what
// decided between its object and the first survivor. If fewer than n objects may go, Select returns
// fewer, because objects that must stay are never chosen. Nil objects are ignored.
//
// A negative n counts as 0. Select does not change its arguments. The victims hold the objects that
// were passed in, not copies. The victims do not depend on the order of the lists. An object that
// is listed twice is chosen once. Two entries are the same object if their UIDs are equal. If they
// have no UID, as with fake clients, two entries are the same object if their pointers are equal.
// If copies of one object differ, the copy that goes first counts. If two objects have no UID and
// the same namespace and name, and no criterion decides, the object that is listed first goes
// first. If there are no victims, the result is nil.
//
// A criterion is evaluated only for objects that all criteria before it left equal, and only until
// the first n objects are known. So Select takes O(len(objs) + len(related) + n log n) time on
// average, and never more than a sort of all objects. If a criterion that By made with strings or
// floats is evaluated, it sorts all objects. Spread always sorts all objects.
//
// Differs from Kubernetes: Select does not change the order of the caller's list, but
// getPodsToDelete in pkg/controller/replicaset sorts the list. If every pod must go,
// getPodsToDelete returns the list unsorted. Select always returns victims in their order.
func Select[T metav1.Object](objs []T, n int, opts Options[T]) []Victim[T] { // (D1, D4)
	n = min(n, len(objs))
	if n <= 0 {
		return nil
	}
	r := newRanking(objs, n+1, opts)
	n = min(n, len(r.found))
	if i := slices.IndexFunc(r.found[:n], func(f found) bool { return r.mustStay(f.place) }); i >= 0 {
		n = i
	}
	if n == 0 {
		return nil
	}
	victims, differs := make([]Victim[T], n), len(r.criteria)
	for i := n - 1; i >= 0; i-- {
		if n < len(r.found) {
			differs = min(differs, int(r.found[i+1].differs))
		}
		victims[i] = r.victim(i, n, differs)
	}
	return victims
}

// Explain returns all objects in the order in which they would go. Each Victim says what decides
// between its object and the next one. The victim at index i is the last victim that Select returns
// for n = i+1. Objects that must stay come last, and the Criterion of their Victim is MustStay.
// Explain treats nil objects and objects that are listed twice in the same way as Select.
func Explain[T metav1.Object](objs []T, opts Options[T]) []Victim[T] {
	r := newRanking(objs, len(objs), opts)
	if len(r.found) == 0 {
		return nil
	}
	victims := make([]Victim[T], len(r.found))
	for i := range victims {
		differs := len(r.criteria)
		if i+1 < len(r.found) {
			differs = int(r.found[i+1].differs)
		}
		victims[i] = r.victim(i, i+1, differs)
	}
	return victims
}

// Check reports values that the criteria of the order cannot read, such as a deletion cost that is
// not a number. The error joins one error for each object and criterion with such a value. The text
// of the error shows the first ten. Select and Explain ignore these errors, because the caller must
// be able to scale down anyway.
func Check[T metav1.Object](objs []T, opts Options[T]) error {
	var errs []error
	for _, obj := range withoutNil(objs) {
		for _, c := range opts.criteria(opts.Order.orDefault()) {
			if c.check == nil {
				continue
			}
			if err := c.check(obj); err != nil {
				errs = append(errs, fmt.Errorf("podrank: %q: criterion %q: %w", object.Name(obj), c.name, err))
			}
		}
	}
	return joined.Errors(errs)
}
