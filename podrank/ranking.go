// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/distinct"
	"github.com/replicakit/replicakit/internal/object"
)

// A ranking uses a multikey quicksort to find the objects that come first. It sorts the objects by
// the first criterion. The next criterion is evaluated only for objects that are still equal. The
// sort ends as soon as enough objects are found, so most criteria are never evaluated for most
// objects.
type ranking[T metav1.Object] struct {
	facts    Facts[T]
	criteria []Criterion[T]
	columns  []*column[T]
	steps    []step[T]
	stays    func(T) bool // Options.MustStay

	want    int // the number of objects to find
	found   []found
	differs int // the index of the criterion in which the next object differs from the last found object

	distinct *distinct.Table // the UIDs of the found objects, or nil if an object may be found twice
	pointers map[any]struct{}

	text   []byte          // the value that is being formatted
	values strings.Builder // the values of all victims, one after the other

	survivor struct { // the last result of survivorValue
		criterion int
		place     int32
		value     string
	}
}

// found describes an object that was found. The field named differs holds the index of the
// criterion in which this object differs from the previous found object.
type found struct{ place, differs int32 }

// A step of the ranking calls the function weigh, which sets the weights of objects. The field criterion
// holds the index of the criterion that this function belongs to. In the last step, which compares UIDs,
// the field criterion holds the number of criteria.
type step[T any] struct {
	criterion int
	weigh     weigher[T]
}

// newRanking returns a ranking that has found the first n distinct objects, or all objects if there
// are fewer than n.
func newRanking[T metav1.Object](objs []T, n int, opts Options[T]) *ranking[T] {
	r := &ranking[T]{
		facts:    Facts[T]{Now: opts.Now, Objects: withoutNil(objs), Related: opts.Related},
		criteria: opts.criteria(opts.Order.orDefault()),
		stays:    opts.MustStay,
	}
	r.columns = make([]*column[T], len(r.criteria))
	for i, c := range r.criteria {
		r.columns[i] = c.open(r.facts)
	}
	r.makeLevelled()
	r.run(n, true)
	return r
}

// makeLevelled calls the function level of each column that has one, such as the column of Spread. The
// returned weigher becomes the only weigher of the column. The argument is the order of all objects by the
// other criteria. This order ignores later criteria that also have a function level.
func (r *ranking[T]) makeLevelled() {
	for i, col := range r.columns {
		if col.level == nil {
			continue
		}
		r.run(len(r.facts.Objects), false)
		sorted := make([]int32, len(r.found))
		for k, f := range r.found {
			sorted[k] = f.place
		}
		leveled := *col
		leveled.weigh = []weigher[T]{col.level(sorted)}
		r.columns[i] = &leveled
	}
}

// run finds the first n objects. If an object is listed twice, run(n, true) finds the object only
// once, but run(n, false) may find the object twice.
func (r *ranking[T]) run(n int, once bool) {
	objs := make([]weighed, len(r.facts.Objects))
	for i := range objs {
		objs[i].place = int32(i)
	}
	r.want = min(n, len(objs))
	r.found = make([]found, 0, r.want)
	if once {
		r.distinct = distinct.New(r.want, func(i int) string { return string(r.facts.Objects[r.found[i].place].GetUID()) })
	}
	r.steps = make([]step[T], 0, len(r.columns)+1)
	for i, col := range r.columns {
		for _, weigh := range col.weigh {
			r.steps = append(r.steps, step[T]{i, weigh})
		}
	}
	r.steps = append(r.steps, step[T]{len(r.columns), weighUID[T]})
	r.rank(objs, 0)
}

// rank appends the first objects of objs to r.found, and stops when r.found holds r.want objects.
// All steps before steps[at] have given these objects equal weights.
func (r *ranking[T]) rank(objs []weighed, at int) {
	switch {
	case len(r.found) == r.want:
	case len(objs) == 1:
		r.find(objs[0].place)
	case at < len(r.steps):
		r.steps[at].weigh(&r.facts, objs)
		r.sort(objs, at, bits.Len(uint(len(objs))))
	default:
		slices.SortFunc(objs, func(a, b weighed) int { return r.compareIdentity(a.place, b.place) })
		for _, o := range objs {
			r.find(o.place)
		}
	}
}

// sort does the same as rank, but steps[at] has already set the weights of the objects. After too
// many uneven partitions, sort uses slices.SortFunc for the remaining objects, so that the time
// never becomes quadratic.
func (r *ranking[T]) sort(objs []weighed, at, tries int) {
	const few = 12
	for ; len(objs) > few && tries > 0 && len(r.found) < r.want; tries-- {
		lower, equal := partition(objs, r.pivot(objs))
		r.sort(objs[:lower], at, tries-1)
		r.next(objs[lower:equal], at)
		objs = objs[equal:]
	}
	if len(r.found) == r.want {
		return
	}
	slices.SortFunc(objs, func(a, b weighed) int { return cmp.Compare(a.weight, b.weight) })
	for len(objs) > 0 {
		equal := lightest(objs)
		r.next(objs[:equal], at)
		objs = objs[equal:]
	}
}

// next calls rank for objects that got equal weights from all steps up to steps[at], including steps[at].
func (r *ranking[T]) next(objs []weighed, at int) {
	r.rank(objs, at+1)
	r.differs = min(r.differs, r.steps[at].criterion)
}

// lightest returns the number of objects that have the same weight as the first object of a sorted
// list.
func lightest(sorted []weighed) int {
	n := 1
	for n < len(sorted) && sorted[n].weight == sorted[0].weight {
		n++
	}
	return n
}

// pivot chooses a weight from a sample of the objects. The chosen weight should be above the
// weights of the objects to find, and below the weights of most other objects.
func (r *ranking[T]) pivot(objs []weighed) int64 {
	var sample [15]int64
	for i := range sample {
		sample[i] = objs[i*len(objs)/len(sample)].weight
	}
	slices.Sort(sample[:])
	share := (r.want - len(r.found)) * len(sample) / len(objs)
	return sample[min(share+1, len(sample)/2)]
}

// partition moves the objects with weights below the pivot to the front of the list. The objects
// with a weight equal to the pivot follow. It returns the ends of these two parts.
func partition(objs []weighed, pivot int64) (lower, equal int) {
	for heavier := len(objs); equal < heavier; {
		switch w := objs[equal].weight; {
		case w == pivot:
			equal++
		case w < pivot:
			objs[lower], objs[equal] = objs[equal], objs[lower]
			lower++
			equal++
		default:
			heavier--
			objs[equal], objs[heavier] = objs[heavier], objs[equal]
		}
	}
	return lower, equal
}

// find appends an object to r.found if the object was not found before.
func (r *ranking[T]) find(place int32) {
	if len(r.found) == r.want {
		return
	}
	last := len(r.found)
	r.found = append(r.found, found{place, int32(r.differs)})
	if r.distinct != nil && !r.isFirst(last) {
		r.found = r.found[:last]
		return
	}
	r.differs = len(r.columns)
}

// isFirst reports whether the object of r.found[i] is found for the first time. An object is
// identified by its UID, or by its pointer if it has no UID.
func (r *ranking[T]) isFirst(i int) bool {
	obj := r.facts.Objects[r.found[i].place]
	switch uid := obj.GetUID(); {
	case uid != "":
		return r.distinct.Add(i, string(uid)) == i
	case reflect.TypeOf(obj).Kind() != reflect.Pointer:
		return true
	}
	if r.pointers == nil {
		r.pointers = make(map[any]struct{})
	}
	n := len(r.pointers)
	r.pointers[obj] = struct{}{}
	return len(r.pointers) > n
}

// weighUID is a weigher that uses the first eight bytes of an object's UID as the weight. If two objects
// are equal in all criteria, the first eight bytes of their UIDs nearly always differ.
func weighUID[T metav1.Object](facts *Facts[T], objs []weighed) {
	for i := range objs {
		var beginning [8]byte
		copy(beginning[:], facts.Objects[objs[i].place].GetUID())
		objs[i].weight = int64(binary.BigEndian.Uint64(beginning[:]) ^ 1<<63)
	}
}

// compareIdentity compares two objects by UID, namespace and name, and then by their places in the
// list (R12, R14).
func (r *ranking[T]) compareIdentity(i, j int32) int {
	return cmp.Or(compareIdentity(r.facts.Objects[i], r.facts.Objects[j]), cmp.Compare(i, j))
}

func compareIdentity[T metav1.Object](p, q T) int {
	if c := cmp.Compare(p.GetUID(), q.GetUID()); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(p.GetNamespace(), q.GetNamespace()), cmp.Compare(p.GetName(), q.GetName()))
}

func (r *ranking[T]) mustStay(place int32) bool {
	return r.stays != nil && r.stays(r.facts.Objects[place])
}

// withoutNil returns the objects that are not nil. If no object is nil, the result is objs itself.
func withoutNil[T metav1.Object](objs []T) []T {
	if object.IndexNil(objs) < 0 {
		return objs
	}
	return slices.DeleteFunc(slices.Clone(objs), object.NilOf[T]())
}
