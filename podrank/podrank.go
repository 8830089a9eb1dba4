// Package podrank decides which objects go first when there are too many: orders
// composed of criteria, Kubernetes' order for pods among them, the choice of the
// first n, and the reason for each.
//
// Which objects are candidates, how many must go, and deleting them is left to the
// caller. Pods that are finished or being deleted should not be passed; they are
// ranked as any other pod is.
//
//	victims := podrank.Select(active, len(active)-want, podrank.PodOptions{Now: now, Related: related})
//	for _, v := range victims {
//		log.Printf("deleting %s/%s: %s", v.Object.Namespace, v.Object.Name, v.Explain())
//		// delete v.Object, with its UID as a precondition
//	}
//
// For objects of any other type, or in another order, say who goes first:
//
//	order, err := podrank.NewOrder(
//		podrank.By("priority", func(m *Machine) int { return m.Priority }),
//		podrank.First("failed", func(m *Machine) bool { return m.Failed }),
//		podrank.Newest[*Machine](),
//	)
//	victims := podrank.Select(machines, n, podrank.Options[*Machine]{Order: order})
//
// Kubernetes' order: unassigned before assigned; Pending before Unknown before
// Running; not ready before ready; lower deletion cost; more related pods on the
// node; ready for less time; more restarts; more sidecar restarts; younger. Every
// order ends with UID, namespace and name. Kubernetes compares times by the power
// of two that their age in nanoseconds reaches, so that a pod of six hours and one
// of eight count as equally old.
//
// Differs from Kubernetes: the order is total. Times of one power of two are a
// tie, and the next criterion decides. Upstream's UID decides there at once,
// unless the instants are equal: three pods can then each go before the next,
// and who is deleted depends on the order of the list. The power of two is that
// of the integer; upstream's floating point reaches it up to 5 ns too early for
// ages of more than 6 days, and one too many at 292 years, where ages end.
//
// All functions are pure, and safe for concurrent use on objects that nobody
// writes to if the caller's own functions are; none changes an object.
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

// Options say what Select and Explain go by. The zero Options are Kubernetes'
// order for pods without co-location, times being compared as they are.
type Options[T metav1.Object] struct {
	// Now is the instant that ages are taken at. If it is zero, criteria compare
	// times as they are.
	Now time.Time

	// Related are the objects that criteria count, such as Colocation and Spread;
	// each of them says what nil and empty mean. They are read only.
	Related []T

	// Order says who goes first; the zero Order stands for a default.
	Order Order[T]

	// MustGo, if not nil, reports whether an object goes before all others,
	// whatever the order says. It changes nothing about how many go.
	MustGo func(T) bool

	// MustStay, if not nil, reports whether an object is never chosen. It beats
	// MustGo: if both are true, the object stays.
	MustStay func(T) bool
}

// PodOptions are the Options for pods.
type PodOptions = Options[*corev1.Pod]

// criteria are those of the order, behind those that beat it.
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

// Select returns the n objects to delete first, in that order, each with what
// decided between it and the first survivor. It returns fewer if fewer may
// go: objects that are nil or must stay never do.
//
// A negative n is 0. Nothing that is passed in is changed, and the victims are
// the same whatever the order of the lists; they are the objects that were passed
// in. A nil object is never a victim and never a survivor. An object listed twice
// goes once; two entries are the same object if their UIDs are equal or, if they
// have none, as with fake clients, the pointers. Of copies that differ, the one
// that goes first counts. Of objects that nothing tells apart, having no UID and
// the same namespace and name, the one listed first goes first. No victims give
// nil.
//
// Select takes O(len(objs) + len(related) + n log n) time on average; no order of
// the lists makes it more than that of a sort. By of strings and floats, and
// Spread, sort all objects.
//
// Differs from Kubernetes: getPodsToDelete in pkg/controller/replicaset sorts the
// list of its caller, all of it, and returns it as it is when every pod must go;
// here the order holds then too.
func Select[T metav1.Object](objs []T, n int, opts Options[T]) []Victim[T] { // (D1, D4)
	n = min(n, len(objs))
	if n <= 0 {
		return nil
	}
	r := newRanking(objs, opts)
	places := r.first(n + 1)
	n = min(n, len(places))
	if i := slices.IndexFunc(places[:n], r.mustStay); i >= 0 {
		n = i
	}
	if n == 0 {
		return nil
	}
	victims := make([]Victim[T], n)
	for i := range victims {
		victims[i] = r.victim(places[i], places[n:])
	}
	return victims
}

// Explain returns all objects in the order in which they would go, each with what
// decides between it and the next. The victim at place i is the one that Select
// would return last if it were asked for i+1. Those that must stay come last, and
// MustStay is their criterion. Objects that are nil or listed twice are treated as
// by Select.
func Explain[T metav1.Object](objs []T, opts Options[T]) []Victim[T] {
	r := newRanking(objs, opts)
	places := r.first(len(objs))
	if len(places) == 0 {
		return nil
	}
	victims := make([]Victim[T], len(places))
	for i, place := range places {
		victims[i] = r.victim(place, places[i+1:])
	}
	return victims
}

// Check reports what the criteria of the order can not read in the objects, such
// as a deletion cost that is not a number. It joins an error for each such object
// and criterion, and its text shows the first ten. Select and Explain do not stop
// at these, as a set must shrink all the same.
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
