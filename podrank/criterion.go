// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Criterion is one question of an Order: which of two objects goes first, or
// neither. By, First, ByTime and ByFacts make criteria; other functions of this
// package return ready-made criteria. A Criterion never changes. It is safe for
// concurrent use if the functions that it was made from are. NewOrder refuses the
// zero Criterion.
type Criterion[T any] struct {
	name   string
	err    error // what NewOrder refuses it for
	phrase string
	open   func(Facts[T]) *column[T]
	check  func(T) error // nil if the criterion can read every object
}

// Facts are what a criterion may look at besides the object itself. They are read
// only.
type Facts[T any] struct {
	// Now is Options.Now.
	Now time.Time
	// Objects are all objects that were passed to Select, without nil ones.
	Objects []T
	// Related is Options.Related.
	Related []T
}

// A column is a criterion at work in one selection. Its weights are what is
// compared, the lower going first: the major one, then the minor one. It is not
// changed when it is made: selections may share it.
type column[T any] struct {
	// bits is how many bits the major weight has: 0 <= weight < 1<<bits. 0 means
	// that it may be any number.
	bits int
	// weigh is called once for each object. What it puts into the cells does not
	// count if there is settle or level.
	weigh weigher[T]
	// settle, if not nil, gives the weights in the end, when all objects are
	// weighed.
	settle func() weights
	// level, if not nil, gives the weights in the end. It is called last, with
	// the places of all objects as the other criteria order them.
	level func(sorted []int32) weights
	// minor reports that minor weights are not all 0; bits is then 0.
	minor bool
	// value says what the criterion looks at in the object.
	value func(now time.Time, i int, obj T) string
	// phrase is how a decision is told, if not as Criterion.phrase has it, and what
	// stands for the detail in it.
	phrase func(now time.Time, i int, obj T) (phrase, detail string)
}

type weights func(i int) (major, minor int64)

// A weigher puts the weights of a few objects into their cells. The objects follow
// each other in Facts.Objects, the first one at the place from: one call for a few
// costs less than one for each, and a loop that does little has the processor read
// several objects at once.
type weigher[T any] func(now time.Time, from int, objs []T, into cells)

// each weighs by one number for each object.
func each[T any](major func(now time.Time, obj T) int64) weigher[T] {
	return func(now time.Time, _ int, objs []T, into cells) {
		for i, obj := range objs {
			into.put(i, major(now, obj))
		}
	}
}

// eachTwice weighs by two numbers for each object.
func eachTwice[T any](both func(obj T) (major, minor int64)) weigher[T] {
	return func(_ time.Time, _ int, objs []T, into cells) {
		for i, obj := range objs {
			major, minor := both(obj)
			into.put(i, major)
			into.putMinor(i, minor)
		}
	}
}

// eachPlace weighs nothing: it calls note for each object, with its place in
// Facts.Objects, for a column that settles later.
func eachPlace[T any](note func(i int, obj T)) weigher[T] {
	return func(_ time.Time, from int, objs []T, _ cells) {
		for i, obj := range objs {
			note(from+i, obj)
		}
	}
}

// What stands for the values, and a detail, in how a decision is told.
const (
	victimHere   = "{victim}"
	survivorHere = "{survivor}"
	detailHere   = "{detail}"
)

// By returns a criterion: the object with the lower value goes first, that is the
// lower number, or the string that sorts first. NaN is the lowest. value is
// called once for each object of a Select, and again for Victim.Values. Use
// Criterion.Reverse if the higher value shall go first.
func By[T any, V cmp.Ordered](name string, value func(T) V) Criterion[T] {
	c := ByFacts(name, func(Facts[T]) func(T) V { return value })
	if value == nil {
		c.err = errNilFunction
	}
	return c
}

// ByFacts is By for a criterion that needs to know more than one object. prepare
// is called once for each Select, and returns the function that is called for
// each object. If that function is nil, all objects are equal.
func ByFacts[T any, V cmp.Ordered](name string, prepare func(Facts[T]) func(T) V) Criterion[T] {
	c := Criterion[T]{name: name, phrase: name + " " + victimHere + " < " + survivorHere}
	if prepare == nil {
		c.err = errNilFunction
	}
	word := wordOf[V]()
	c.open = func(facts Facts[T]) *column[T] {
		value := prepare(facts)
		if value == nil {
			return equal[T]()
		}
		col := ordinals(len(facts.Objects), value)
		if word != nil {
			col = &column[T]{weigh: each(func(_ time.Time, obj T) int64 { return word(value(obj)) })}
		}
		col.value = func(_ time.Time, _ int, obj T) string { return fmt.Sprint(value(obj)) }
		return col
	}
	return c
}

var errNilFunction = errors.New("function is nil")

// equal is the column of a criterion that decides nothing.
func equal[T any]() *column[T] {
	return &column[T]{
		bits:  1,
		weigh: func(time.Time, int, []T, cells) {},
		value: func(time.Time, int, T) string { return "" },
	}
}

// wordOf returns the function that makes a weight of a value, nil if a value
// does not fit into one.
func wordOf[V cmp.Ordered]() func(V) int64 {
	switch kind := reflect.TypeFor[V]().Kind(); {
	case kind >= reflect.Int && kind <= reflect.Int64:
		return func(v V) int64 { return reflect.ValueOf(v).Int() }
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		return func(v V) int64 { return int64(reflect.ValueOf(v).Uint() ^ 1<<63) }
	}
	return nil
}

// ordinals weighs n objects by the places that their values have among all.
func ordinals[T any, V cmp.Ordered](n int, value func(T) V) *column[T] {
	values := make([]V, n)
	return &column[T]{
		weigh: eachPlace(func(i int, obj T) { values[i] = value(obj) }),
		settle: func() weights {
			sorted := slices.Clone(values)
			slices.Sort(sorted)
			return func(i int) (int64, int64) {
				place, _ := slices.BinarySearch(sorted, values[i])
				return int64(place), 0
			}
		},
	}
}

// First returns a criterion: objects for which the function returns true go
// first. By says how often the function is called.
func First[T any](name string, is func(T) bool) Criterion[T] {
	no, negative := strings.CutPrefix(name, "not ")
	if !negative {
		no = "not " + name
	}
	return flag(name, name, no, is)
}

// flag is First with the two values in words.
func flag[T any](name, yes, no string, is func(T) bool) Criterion[T] {
	c := Criterion[T]{name: name, phrase: victimHere}
	if is == nil {
		c.err = errNilFunction
	}
	col := &column[T]{
		bits: 1,
		weigh: each(func(_ time.Time, obj T) int64 {
			if is(obj) {
				return 0
			}
			return 1
		}),
		value: func(_ time.Time, _ int, obj T) string {
			if is(obj) {
				return yes
			}
			return no
		},
	}
	c.open = func(Facts[T]) *column[T] { return col }
	return c
}

// ByTime returns a criterion: the object with the earlier instant goes first. The
// zero instant is the earliest. By says how often the function is called.
func ByTime[T any](name string, at func(T) time.Time) Criterion[T] {
	c := Criterion[T]{name: name, phrase: name + " " + victimHere + " < " + survivorHere}
	if at == nil {
		c.err = errNilFunction
	}
	col := &column[T]{
		minor: true,
		weigh: eachTwice(func(obj T) (int64, int64) {
			t := at(obj)
			if t.IsZero() {
				return math.MinInt64, 0
			}
			return t.Unix(), int64(t.Nanosecond())
		}),
		value: func(_ time.Time, _ int, obj T) string { return timeText(at(obj), time.Time{}) },
	}
	c.open = func(Facts[T]) *column[T] { return col }
	return c
}

// Newest returns a criterion: the object that was created last goes first.
// Objects without a creation time go before all others.
//
// It compares the instants exactly, to the nanosecond. CreationTime is
// Kubernetes' rule for pods, which compares ages only roughly.
func Newest[T metav1.Object]() Criterion[T] {
	return created[T]("newest", func(t time.Time) (int64, int64) { return -t.Unix(), -int64(t.Nanosecond()) }, " < ", " > ")
}

// Oldest returns a criterion: the object that was created first goes first.
// Objects without a creation time go before all others.
func Oldest[T metav1.Object]() Criterion[T] {
	return created[T]("oldest", func(t time.Time) (int64, int64) { return t.Unix(), int64(t.Nanosecond()) }, " > ", " < ")
}

func created[T metav1.Object](name string, weigh func(time.Time) (int64, int64), ages, instants string) Criterion[T] {
	at := func(obj T) time.Time { return obj.GetCreationTimestamp().Time }
	col := &column[T]{
		minor: true,
		weigh: eachTwice(func(obj T) (int64, int64) {
			if at(obj).IsZero() {
				return math.MinInt64, 0
			}
			return weigh(at(obj))
		}),
		value: func(now time.Time, _ int, obj T) string { return timeText(at(obj), now) },
		phrase: func(now time.Time, _ int, obj T) (phrase, detail string) {
			switch {
			case at(obj).IsZero():
				return "creation time " + victimHere, ""
			case now.IsZero():
				return "creation time " + victimHere + instants + survivorHere, ""
			}
			return "age " + victimHere + ages + survivorHere, ""
		},
	}
	return Criterion[T]{name: name, open: func(Facts[T]) *column[T] { return col }}
}

// Name returns the name of the criterion, as it stands in an Order and in a
// Victim.
func (c Criterion[T]) Name() string { return c.name }

// Reverse returns the opposite criterion: the higher value goes first or, for
// First, the object for which the function returns false. The name stays the
// same.
func (c Criterion[T]) Reverse() Criterion[T] {
	open := c.open
	if open == nil {
		return c // the zero Criterion
	}
	c.phrase = turned.Replace(c.phrase)
	c.open = func(facts Facts[T]) *column[T] {
		col := *open(facts)
		weigh, settle, level, phrase, mask := col.weigh, col.settle, col.level, col.phrase, col.mask()
		switch {
		case settle != nil:
			col.settle = func() weights { return settle().reverse(mask) }
		case level != nil:
			col.level = func(sorted []int32) weights { return level(sorted).reverse(mask) }
		default:
			col.weigh = func(now time.Time, from int, objs []T, into cells) {
				weigh(now, from, objs, into)
				into.reverse(len(objs), mask)
			}
		}
		if phrase != nil {
			col.phrase = func(now time.Time, i int, obj T) (string, string) {
				text, detail := phrase(now, i, obj)
				return turned.Replace(text), detail
			}
		}
		return &col
	}
	return c
}

// mask has the bits of a major weight: to turn them is to turn the order.
func (c *column[T]) mask() int64 {
	if c.bits == 0 {
		return -1
	}
	return 1<<c.bits - 1
}

// reverse turns the order of the weights round.
func (w weights) reverse(mask int64) weights {
	return func(i int) (int64, int64) {
		major, minor := w(i)
		return major ^ mask, ^minor
	}
}

var turned = strings.NewReplacer(" < ", " > ", " > ", " < ")
