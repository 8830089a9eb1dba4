// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/distinct"
	"github.com/replicakit/replicakit/internal/object"
)

// A ranking finds the objects that go first, by a multikey quicksort. The ranking weighs the
// objects by the first criterion and sorts them. The next criterion weighs only the objects that
// are still equal. The ranking ends as soon as enough objects are found, so most criteria are never
// evaluated for most objects.
type ranking[T metav1.Object] struct {
	facts    Facts[T]
	criteria []Criterion[T]
	columns  []*column[T]
	steps    []step[T]
	stays    func(T) bool // Options.MustStay

	want    int // how many objects to find
	found   []found
	differs int // the criterion on which the next object differs from the last one that was found

	distinct *distinct.Table // the UIDs of the found objects, or nil if an object may be found twice
	pointers map[any]struct{}

	survivor struct { // the last survivor whose value was returned
		criterion int
		place     int32
		value     string
	}
}

// found is the place of an object that was found, and the criterion on which the object differs
// from the object before it.
type found struct{ place, differs int32 }

// A step is one weigher, and the criterion that the weigher belongs to.
type step[T any] struct {
	criterion int
	weigh     weigher[T]
}

// newRanking makes a ranking, and finds the first n different objects in their order. If there are
// fewer than n, newRanking finds all objects.
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
	r.level()
	r.run(n, true)
	return r
}

// level makes the weighers of columns such as Spread, which need the order of all objects by the
// other criteria.
func (r *ranking[T]) level() {
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

// run finds the first n objects. If once is true, run finds an object only once even if it is
// listed twice.
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

// rank finds the first of these objects. The objects are equal by all steps before the step at.
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

// sort finds the first of these objects, which the step at has weighed. If the parts are uneven
// again and again, sort orders all remaining objects at once, so the time never becomes quadratic.
func (r *ranking[T]) sort(objs []weighed, at, tries int) {
	const few = 12
	for ; len(objs) > few && tries > 0 && len(r.found) < r.want; tries-- {
		lower, equal := part(objs, r.pivot(objs))
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

// next finds the first of these objects, which the step at left equal.
func (r *ranking[T]) next(objs []weighed, at int) {
	r.rank(objs, at+1)
	r.differs = min(r.differs, r.steps[at].criterion)
}

// lightest returns how many objects at the front of a sorted list weigh the same.
func lightest(sorted []weighed) int {
	n := 1
	for n < len(sorted) && sorted[n].weight == sorted[0].weight {
		n++
	}
	return n
}

// pivot returns a weight from a sample of the objects. The objects to find should weigh less, but
// only a few other objects should.
func (r *ranking[T]) pivot(objs []weighed) int64 {
	var sample [15]int64
	for i := range sample {
		sample[i] = objs[i*len(objs)/len(sample)].weight
	}
	slices.Sort(sample[:])
	share := (r.want - len(r.found)) * len(sample) / len(objs)
	return sample[min(share+1, len(sample)/2)]
}

// part moves the objects that are lighter than the pivot to the front, followed by the objects that
// weigh the same as the pivot. The results are the ends of the two parts.
func part(objs []weighed, pivot int64) (lower, equal int) {
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

// find adds an object to the found objects, unless the object was found before.
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

// isFirst reports whether an object is found for the first time. An object is identified by its
// UID, or by its pointer if it has no UID.
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

// weighUID weighs an object by the first bytes of its UID. If no criterion decides, these bytes
// nearly always do.
func weighUID[T metav1.Object](facts *Facts[T], objs []weighed) {
	for i := range objs {
		var beginning [8]byte
		copy(beginning[:], facts.Objects[objs[i].place].GetUID())
		objs[i].weight = int64(binary.BigEndian.Uint64(beginning[:]) ^ 1<<63)
	}
}

// compareIdentity compares what every order ends with, which is UID, namespace, name, and then the
// place in the list (R12, R14).
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

// withoutNil returns the objects that are not nil. If none is nil, the result is objs itself.
func withoutNil[T metav1.Object](objs []T) []T {
	if object.IndexNil(objs) < 0 {
		return objs
	}
	return slices.DeleteFunc(slices.Clone(objs), object.NilOf[T]())
}
