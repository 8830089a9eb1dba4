// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podrank decides which objects to delete first when there are too many. An Order is a list
// of criteria. For pods, the function Kubernetes() returns the order that Kubernetes uses. Select
// returns the n objects that come first in an Order, with the reason why each object was chosen.
//
// The caller chooses the candidates and the number of objects to delete, and makes the delete
// calls. Do not pass pods that are finished or being deleted, because Select ranks them like all
// other pods.
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
// Kubernetes' order consists of the following rules. If two pods differ in several rules, the first
// of these rules decides:
//
//   - A pod without a node comes first.
//   - A Pending pod comes before an Unknown pod, and an Unknown pod comes before a Running pod.
//   - A pod that is not ready comes first.
//   - A pod with a lower deletion cost comes first.
//   - A pod with more related pods on its node comes first.
//   - A pod that has been ready for less time comes first.
//   - A pod with more restarts comes first.
//   - A pod with more sidecar restarts comes first.
//   - A younger pod comes first.
//
// If two pods are equal in all of these rules, they are ordered by UID, namespace and name.
// Kubernetes does not compare ages exactly, but rounds each age in nanoseconds down to a power of
// two. For example, a pod that is six hours old and a pod that is eight hours old count as equally
// old.
//
// Differs from Kubernetes: the order is total. If two ages round down to the same power of two, the
// next criterion decides. In this case, Kubernetes uses the next criterion only if the two times are
// equal. Otherwise, Kubernetes skips the remaining criteria and compares the UIDs. In Kubernetes,
// pod A can therefore come before B, B before C, and C before A. The victims then depend on the
// order of the list. To round an age down to a power of two, this package uses integers, and
// Kubernetes uses floating-point numbers. If an age of more than 6 days is only some nanoseconds
// shorter than a power of two, Kubernetes rounds the age up instead of down. Kubernetes also rounds
// up the longest possible age, which is 292 years.
//
// All functions are pure and do not change the objects. They are safe for concurrent use on two
// conditions. The functions that you pass must be safe for concurrent use, and no goroutine may
// change the objects.
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

// Options holds the settings of Select, Explain and Check. For pods, the zero value means
// Kubernetes' order without co-location and with an exact comparison of times.
type Options[T metav1.Object] struct {
	// Now is the time from which ages are computed. If Now is zero, criteria compare times exactly.
	Now time.Time

	// Related holds the objects to count for criteria such as Colocation and Spread. The comments
	// on these criteria describe the effect of an empty list. The objects are not changed.
	Related []T

	// Order defines which objects are deleted first. For pods, the zero Order means Kubernetes().
	// For other objects, the zero Order has only the criterion Newest.
	Order Order[T]

	// MustGo may be nil. If it returns true for an object, this object is deleted before all other
	// objects, regardless of Order. MustGo does not change the number of objects to delete.
	MustGo func(T) bool

	// MustStay may be nil. If it returns true for an object, this object is not deleted. If MustGo
	// and MustStay both return true, the object stays.
	MustStay func(T) bool
}

// PodOptions is Options for pods.
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

// Select returns the n objects to delete, in the order of deletion. Each Victim contains the
// criterion that decided between its object and the first survivor. Objects for which
// Options.MustStay returns true are never chosen, so Select may return fewer than n objects. Nil
// objects are ignored.
//
// A negative n counts as 0. Select does not change its arguments. The victims contain the objects
// that were passed in, not copies. An object that is listed twice is chosen once. Two entries are
// the same object if their UIDs are equal. Two entries without a UID, for example from a fake
// client, are the same object if their pointers are equal. If copies of one object differ, the copy
// that comes first in the Order is used. The victims do not depend on the order of the lists, with
// one exception. If two objects without a UID have the same namespace and name, and are equal in all
// criteria, their order in the list decides. If there are no victims, the result is nil.
//
// A criterion is evaluated only for objects that are equal in all earlier criteria, and only until
// the first n objects are known. Select therefore takes O(len(objs) + len(related) + n log n) time
// on average. It never takes more time than a sort of all objects. If By made a criterion with
// string or float values, its first evaluation sorts the values of all objects. Spread always sorts
// all objects.
//
// Differs from Kubernetes: Select does not change the caller's list, and always returns the victims
// in the order of deletion. In Kubernetes, getPodsToDelete in pkg/controller/replicaset sorts the
// caller's list. If all pods must be deleted, getPodsToDelete returns the list unsorted.
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
	if n < len(r.found) { // otherwise all go, and none has a value
		r.values.Grow(n * typicalValue)
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

// Explain returns all objects in the order of deletion. Each Victim contains the criterion that
// decides between its object and the next object. The Victim at index i is equal to the last Victim
// that Select returns for n = i+1. Objects for which Options.MustStay returns true come last, and
// the Criterion of their Victims is MustStay. Like Select, Explain ignores nil objects, and returns
// only one Victim for an object that is listed twice.
func Explain[T metav1.Object](objs []T, opts Options[T]) []Victim[T] {
	r := newRanking(objs, len(objs), opts)
	if len(r.found) == 0 {
		return nil
	}
	r.values.Grow(len(r.found) * typicalValue)
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

// Check returns an error if a criterion of the order cannot read the value of an object. An example
// is a deletion cost that is not a number. The error joins one error for each unreadable value. Its
// message contains the first ten of these errors. Select and Explain ignore unreadable values,
// because the caller must be able to scale down anyway.
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
