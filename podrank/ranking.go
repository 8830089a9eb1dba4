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

// A ranking finds the objects that go first. It is a multikey quicksort. It weighs objects by the
// first criterion, sorts them, and weighs by the next criterion only those that are equal so far.
// It ends as soon as enough objects are found, so most objects are never asked about most criteria.
type ranking[T metav1.Object] struct {
	facts    Facts[T]
	criteria []Criterion[T]
	columns  []*column[T]
	steps    []step[T]
	stays    func(T) bool // Options.MustStay

	want    int // how many to find
	found   []found
	differs int // the criterion on which the next object differs from the last one that was found

	distinct *distinct.Table // of found, by UID, or nil if an object may be found twice
	pointers map[any]struct{}

	survivor struct { // the last survivor whose value was returned
		criterion int
		place     int32
		value     string
	}
}

// found is an object by its place, and the criterion on which it differs from the
// object before.
type found struct{ place, differs int32 }

// A step is one weigher and the criterion that it belongs to.
type step[T any] struct {
	criterion int
	weigh     weigher[T]
}

// newRanking finds the first n different objects in their order, or all of them if there are fewer.
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

// level makes the weighers of the columns that need the order of all objects by the other criteria.
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

// run finds the first n objects. If once is true, it finds each object once.
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

// rank finds objects that are equal by all steps before this one.
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

// sort finds objects that this step has weighed, the lightest first. If the parts are uneven again
// and again, it sorts the rest, so the time never becomes quadratic.
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

// next finds objects that this step left equal.
func (r *ranking[T]) next(objs []weighed, at int) {
	r.rank(objs, at+1)
	r.differs = min(r.differs, r.steps[at].criterion)
}

// lightest returns how many objects at the front weigh the same.
func lightest(sorted []weighed) int {
	n := 1
	for n < len(sorted) && sorted[n].weight == sorted[0].weight {
		n++
	}
	return n
}

// pivot returns a weight of a sample. The objects to find weigh less, but not many others do.
func (r *ranking[T]) pivot(objs []weighed) int64 {
	var sample [15]int64
	for i := range sample {
		sample[i] = objs[i*len(objs)/len(sample)].weight
	}
	slices.Sort(sample[:])
	share := (r.want - len(r.found)) * len(sample) / len(objs)
	return sample[min(share+1, len(sample)/2)]
}

// part moves the objects that are lighter than the pivot to the front, followed by those that weigh
// the same. It returns where each part ends.
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

// find adds an object to those that are found, unless it is already there.
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

// isFirst reports whether an object is found for the first time. Objects are known by UID or,
// without a UID, by pointer.
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

// weighUID weighs by the beginning of the UID, which decides nearly always if no
// criterion does.
func weighUID[T metav1.Object](facts *Facts[T], objs []weighed) {
	for i := range objs {
		var beginning [8]byte
		copy(beginning[:], facts.Objects[objs[i].place].GetUID())
		objs[i].weight = int64(binary.BigEndian.Uint64(beginning[:]) ^ 1<<63)
	}
}

// compareIdentity is the end of every order: UID, namespace and name, and then the place in the
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

// withoutNil returns the objects that are not nil. If none is nil, it returns the slice itself.
func withoutNil[T metav1.Object](objs []T) []T {
	if object.IndexNil(objs) < 0 {
		return objs
	}
	return slices.DeleteFunc(slices.Clone(objs), object.NilOf[T]())
}
