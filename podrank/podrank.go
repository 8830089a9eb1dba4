// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podrank decides which objects go first when there are too many. It has orders that are
// made of criteria, including Kubernetes' order for pods, the choice of the first n, and the reason
// for each.
//
// The caller decides which objects are candidates and how many must go, and makes the delete calls.
// Do not pass pods that are finished or being deleted, because they are ranked like any other pod.
//
//	victims := podrank.Select(active, len(active)-want, podrank.PodOptions{Now: now, Related: related})
//	for _, v := range victims {
//		log.Printf("deleting %s/%s: %s", v.Object.Namespace, v.Object.Name, v.Explain())
//		// delete v.Object, with its UID as a precondition
//	}
//
// For objects of any other type, or for another order, make an Order:
//
//	order, err := podrank.NewOrder(
//		podrank.By("priority", func(m *Machine) int { return m.Priority }),
//		podrank.First("failed", func(m *Machine) bool { return m.Failed }),
//		podrank.Newest[*Machine](),
//	)
//	victims := podrank.Select(machines, n, podrank.Options[*Machine]{Order: order})
//
// Kubernetes' order: unassigned before assigned; Pending before Unknown before Running; not ready
// before ready; lower deletion cost; more related pods on the node; ready for less time; more
// restarts; more sidecar restarts; younger. Every order ends with UID, namespace and name.
// Kubernetes does not compare ages exactly. It rounds the age in nanoseconds down to a power of
// two. So a pod of six hours and a pod of eight hours can count as equally old.
//
// Differs from Kubernetes: the order is total. If two ages have the same power of two, the next
// criterion decides. Upstream compares the UIDs at once there, unless the instants are equal. Three
// pods can then form a circle, each before the next, and the victims depend on the order of the
// list. The power of two is computed with integers. Upstream computes it with floating point, which
// is wrong up to 5 ns before a power of two for ages of more than 6 days, and for the longest age,
// 292 years.
//
// All functions are pure and change no object. They are safe for concurrent use if no goroutine
// writes to the objects, and if the caller's own functions are safe too.
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

// Options are the settings of Select, Explain and Check. For pods, the zero
// Options mean Kubernetes' order without co-location, and with times compared
// exactly.
type Options[T metav1.Object] struct {
	// Now is the instant from which ages are counted. If it is zero, criteria
	// compare times exactly.
	Now time.Time

	// Related are the objects that criteria such as Colocation and Spread count. The comment of
	// each criterion says what nil and empty mean. They are read only.
	Related []T

	// Order says who goes first. The zero Order is Kubernetes() for pods, and the
	// order of Newest for other objects.
	Order Order[T]

	// MustGo, if not nil, reports whether an object goes before all others, regardless of the
	// order. It does not change how many objects go.
	MustGo func(T) bool

	// MustStay, if not nil, reports whether an object is never chosen. If MustGo is true too, the
	// object stays.
	MustStay func(T) bool
}

// PodOptions are the Options for pods.
type PodOptions = Options[*corev1.Pod]

// criteria are MustStay and MustGo, if they are set, and then those of the order.
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

// Select returns the n objects to delete, the first to go first, each with what decided between it
// and the first survivor. It returns fewer if fewer may go, because objects that must stay are
// never chosen. Nil objects are ignored.
//
// A negative n is 0. Select changes nothing that is passed in. The victims are the objects that
// were passed in, not copies, and do not depend on the order of the lists. An object that is listed
// twice is chosen once. Two entries are the same object if their UIDs are equal or, if they have no
// UID, as with fake clients, if their pointers are equal. If copies of one object differ, the copy
// that goes first counts. If two objects have no UID and the same namespace and name, and no
// criterion decides, the object that is listed first goes first. If there are no victims, the
// result is nil.
//
// A criterion is asked only about objects that all criteria before it left equal, and only until
// the first n are known. So Select takes O(len(objs) + len(related) + n log n) time on average, and
// never more than a sort of all objects. If By with strings or floats is asked, it sorts all
// objects. Spread always sorts them.
//
// Differs from Kubernetes: getPodsToDelete in pkg/controller/replicaset sorts the whole list of its
// caller. If every pod must go, it returns the list unsorted. Select always returns victims in
// their order.
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

// Explain returns all objects in the order in which they would go, each with what
// decides between it and the next. The victim at index i is the last one that
// Select returns for n = i+1. Objects that must stay come last, and their
// criterion is MustStay. Nil objects and objects that are listed twice are
// treated as by Select.
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

// Check reports what the criteria of the order cannot read in the objects, such as a deletion cost
// that is not a number. The error joins one error for each such object and criterion. Its text
// shows the first ten. Select and Explain ignore these errors, since the caller must be able to
// scale down anyway.
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
