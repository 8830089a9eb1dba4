// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"math/bits"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
)

// A ranking is a list of objects with a row of words for each, which are all that
// is compared, and the places in that list, which are what is sorted.
type ranking[T metav1.Object] struct {
	objs     []T
	now      time.Time
	stays    bool // there is a criterion MustStay, which comes first
	criteria []Criterion[T]
	columns  []*column[T]
	slots    []slot // of the columns
	width    int    // of a row
	words    []int64
	places   []int32
	survivor struct { // the last whose value was asked for
		criterion int
		place     int32
		value     string
	}
}

// A slot is where a column has its weights in a row: the major one in a word, from
// the bit shift on, and the minor one, if any, in the word behind it.
type slot struct {
	word  int
	shift uint // less than 64
}

// put puts a major weight into a row, in place of 0.
func (s slot) put(row []int64, major int64) { row[s.word] |= major << (s.shift & 63) }

// cells are where a column has the weights of a few objects, which are 0 at first.
type cells struct {
	slot
	width int     // of a row
	words []int64 // from the first object's row on
	minor bool    // there are minor weights
}

// put sets the major weight of an object.
func (c *cells) put(i int, major int64) { c.slot.put(c.words[i*c.width:], major) }

// putMinor sets the minor weight of an object.
func (c *cells) putMinor(i int, minor int64) { c.words[i*c.width+c.word+1] = minor }

// reverse turns the order of the weights of n objects round.
func (c *cells) reverse(n int, mask int64) {
	for i := range n {
		c.words[i*c.width+c.word] ^= mask << (c.shift & 63)
		if c.minor {
			c.words[i*c.width+c.word+1] ^= -1
		}
	}
}

func newRanking[T metav1.Object](objs []T, opts Options[T]) *ranking[T] {
	objs = withoutNil(objs)
	order := opts.Order.orDefault()
	r := &ranking[T]{objs: objs, now: opts.Now, stays: opts.MustStay != nil, criteria: opts.criteria(order), places: make([]int32, len(objs))}
	r.open(Facts[T]{Now: opts.Now, Objects: objs, Related: opts.Related})
	r.weigh(order)
	r.settle()
	return r
}

// open opens the columns and gives each its slot. As many as fit share a word, the
// first uppermost: rows are short, and one comparison does for all. The sign bit
// is left to those that need a whole word.
func (r *ranking[T]) open(facts Facts[T]) {
	r.columns, r.slots = make([]*column[T], len(r.criteria)), make([]slot, len(r.criteria))
	free := 0
	for i, c := range r.criteria {
		col := c.open(facts)
		if col.bits == 0 || col.bits > free {
			free = 63
			r.width++
		}
		free -= col.bits
		if col.bits == 0 {
			free = 0
		}
		r.columns[i], r.slots[i] = col, slot{word: r.width - 1, shift: uint(free)}
		if col.minor {
			r.width++
		}
	}
}

// withoutNil returns the objects that are not nil: the slice itself if none is.
func withoutNil[T metav1.Object](objs []T) []T {
	if object.IndexNil(objs) < 0 {
		return objs
	}
	return slices.DeleteFunc(slices.Clone(objs), object.NilOf[T]())
}

// weigh fills the rows, column by column for a few objects at a time: so what one
// column has read is at hand for the next.
func (r *ranking[T]) weigh(order Order[T]) {
	const few = 16
	quick, ahead := order.weigh, len(r.columns)-len(order.criteria)
	if r.now.IsZero() {
		quick = nil
	}
	r.words = make([]int64, len(r.objs)*r.width)
	for from := 0; from < len(r.objs); from += few {
		objs := r.objs[from:min(from+few, len(r.objs))]
		for i, obj := range objs {
			r.places[from+i] = int32(from + i)
			if quick != nil {
				quick(r.now, obj, r.row(int32(from+i)), r.slots[ahead:])
			}
		}
		for c, col := range r.columns {
			if quick == nil || c < ahead || col.settle != nil {
				col.weigh(r.now, from, objs, r.cells(c, from))
			}
		}
	}
}

// cells are those of a column, from the object at a place on.
func (r *ranking[T]) cells(c, from int) cells {
	return cells{slot: r.slots[c], width: r.width, words: r.words[from*r.width:], minor: r.columns[c].minor}
}

// settle sets the weights that are known only when all objects are weighed.
func (r *ranking[T]) settle() {
	for c, col := range r.columns {
		if col.settle != nil {
			r.set(c, col.settle())
		}
	}
	for c, col := range r.columns {
		if col.level != nil {
			r.set(c, col.level(slices.SortedFunc(slices.Values(r.places), r.compare)))
		}
	}
}

// set gives all objects the weights of a column, which are 0 until then.
func (r *ranking[T]) set(c int, weights weights) {
	cells := r.cells(c, 0)
	for i := range r.objs {
		major, minor := weights(i)
		cells.put(i, major)
		if cells.minor {
			cells.putMinor(i, minor)
		}
	}
}

func (r *ranking[T]) row(i int32) []int64 {
	return r.words[int(i)*r.width : (int(i)+1)*r.width]
}

// compare is the order of two places: by the first word that differs, by UID,
// namespace and name, and at last by which is listed first.
func (r *ranking[T]) compare(i, j int32) int {
	a, b := r.row(i), r.row(j)
	for k, word := range a {
		if word != b[k] {
			return cmp.Compare(word, b[k])
		}
	}
	if c := compareIdentity(r.objs[i], r.objs[j]); c != 0 {
		return c
	}
	return cmp.Compare(i, j)
}

// compareIdentity is what comes last in every order (R12, R14).
func compareIdentity[T metav1.Object](p, q T) int {
	if c := cmp.Compare(p.GetUID(), q.GetUID()); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(p.GetNamespace(), q.GetNamespace()), cmp.Compare(p.GetName(), q.GetName()))
}

// differ returns the criterion on which two places differ first, -1 for none.
func (r *ranking[T]) differ(i, j int32) int {
	a, b := r.row(i), r.row(j)
	for c, at := range r.slots {
		if a[at.word]>>at.shift != b[at.word]>>at.shift || r.columns[c].minor && a[at.word+1] != b[at.word+1] {
			return c
		}
	}
	return -1
}

// mustStay reports whether the object at that place must stay.
func (r *ranking[T]) mustStay(i int32) bool { return r.stays && r.row(i)[0]>>r.slots[0].shift != 0 }

// first returns the places of the first n different objects in their order, of
// all of them if there are fewer.
func (r *ranking[T]) first(n int) []int32 {
	for m := n; ; m *= 2 { // again only if an object is listed twice
		found := r.distinct(r.smallest(min(m, len(r.places))), n)
		if len(found) == n || m >= len(r.places) {
			return found
		}
	}
}

// smallest returns at least the first n places in their order. Quickselect
// narrows the places to few more than n, and those are sorted. Pivots that are
// bad again and again lead to sorting more, never to quadratic time.
func (r *ranking[T]) smallest(n int) []int32 {
	lo, hi := 0, len(r.places) // lo <= n <= hi
	for tries := bits.Len(uint(hi)); hi-n > sampleSize && tries > 0; tries-- {
		if middle := lo + r.partition(r.places[lo:hi], n-lo); middle < n {
			lo = middle + 1
		} else {
			hi = middle
		}
	}
	slices.SortFunc(r.places[:hi], r.compare)
	return r.places[:hi]
}

const sampleSize = 64

// partition moves the places that go before one of them to its left and the
// others to its right, and returns where that one ended up: a little behind n if
// a sample is right.
func (r *ranking[T]) partition(places []int32, n int) int {
	step, last := len(places)/sampleSize, len(places)-1
	for i := range sampleSize {
		places[i], places[i*step] = places[i*step], places[i]
	}
	slices.SortFunc(places[:sampleSize], r.compare)
	middle := min(n*sampleSize/len(places)+4, sampleSize-1)
	places[middle], places[last] = places[last], places[middle]
	pivot, left, right := places[last], 0, last-1
	for {
		for left < last && r.compare(places[left], pivot) < 0 {
			left++
		}
		for right > left && r.compare(places[right], pivot) > 0 {
			right--
		}
		if left >= right {
			break
		}
		places[left], places[right] = places[right], places[left]
		left++
		right--
	}
	places[left], places[last] = places[last], places[left]
	return left
}

// distinct returns the first n places that stand for different objects, fewer if
// there are no more.
func (r *ranking[T]) distinct(places []int32, n int) []int32 {
	n = min(n, len(places))
	found := make([]int32, 0, n)
	seen := sightings{uids: make(map[types.UID]struct{}, n)}
	for _, i := range places {
		if len(found) < n && seen.add(r.objs[i]) {
			found = append(found, i)
		}
	}
	return found
}

// sightings are objects seen, each once: known by UID, failing that by pointer.
type sightings struct {
	uids   map[types.UID]struct{}
	others map[any]struct{}
}

// add reports whether the object is seen for the first time.
func (s *sightings) add(obj metav1.Object) bool {
	if uid := obj.GetUID(); uid != "" {
		n := len(s.uids)
		s.uids[uid] = struct{}{}
		return len(s.uids) > n
	}
	if reflect.TypeOf(obj).Kind() != reflect.Pointer {
		return true
	}
	if s.others == nil {
		s.others = make(map[any]struct{})
	}
	n := len(s.others)
	s.others[obj] = struct{}{}
	return len(s.others) > n
}
