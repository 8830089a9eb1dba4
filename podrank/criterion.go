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
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Criterion is one step of an Order. A Criterion decides which of two objects goes first, or
// finds that both are equal. By, First, ByTime and ByFacts make criteria. Other functions of this
// package return ready-made criteria. A Criterion never changes. A Criterion is safe for concurrent
// use if the functions from which it was made are safe. NewOrder refuses the zero Criterion.
type Criterion[T any] struct {
	name   string
	err    error // why NewOrder refuses the criterion
	phrase string
	open   func(Facts[T]) *column[T]
	check  func(T) error // nil if the criterion can read every object
}

// Facts hold what a criterion may use in addition to the object itself. A criterion must not change
// them.
type Facts[T any] struct {
	// Now is Options.Now.
	Now time.Time
	// Objects are all objects that were passed to Select, except nil objects.
	Objects []T
	// Related is Options.Related.
	Related []T
}

// A column is a criterion in one selection. A column never changes after it was made, so selections
// may share a column.
type column[T any] struct {
	// weigh holds the weighers in their order. Each weigher weighs only objects that the weighers
	// before it left equal.
	weigh []weigher[T]
	// level, if not nil, returns the only weigher of the column. The argument is the places of all
	// objects in the order that the other criteria give. level is called before the final ranking.
	level func(sorted []int32) weigher[T]
	// value returns the object's value for this criterion, in words.
	value func(now time.Time, i int, obj T) string
	// phrase, if not nil, returns the words that explain a decision, and the detail in these words.
	// The words replace Criterion.phrase.
	phrase func(now time.Time, i int, obj T) (phrase, detail string)
}

// A weigher weighs some objects. The object with the lower weight goes first.
type weigher[T any] func(facts *Facts[T], objs []weighed)

// weighed is an object and its weight. The place of the object is its index in Facts.Objects.
type weighed struct {
	weight int64
	place  int32
}

// each returns a weigher that weighs each object by itself.
func each[T any](weight func(obj T) int64) weigher[T] {
	return func(facts *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(facts.Objects[objs[i].place])
		}
	}
}

// eachAt returns a weigher that weighs each object by itself, at the time Facts.Now.
func eachAt[T any](weight func(obj T, now time.Time) int64) weigher[T] {
	return func(facts *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(facts.Objects[objs[i].place], facts.Now)
		}
	}
}

// eachPlace returns a weigher that weighs each object by its place.
func eachPlace[T any](weight func(place int32) int64) weigher[T] {
	return func(_ *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(objs[i].place)
		}
	}
}

// Victim.Explain replaces these placeholders in a phrase with the values and the detail.
const (
	victimHere   = "{victim}"
	survivorHere = "{survivor}"
	detailHere   = "{detail}"
)

// By returns a criterion by which the object with the lower value goes first. Strings are compared
// byte by byte. NaN is lower than any number. In one Select, value is called at most once for each
// object. value is called again for Victim.Values, and again for each Spread in the order. If the
// object with the higher value should go first, use Criterion.Reverse.
func By[T any, V cmp.Ordered](name string, value func(T) V) Criterion[T] {
	c := ByFacts(name, func(Facts[T]) func(T) V { return value })
	if value == nil {
		c.err = errNilFunction
	}
	return c
}

// ByFacts is like By, for a criterion that needs to know more than one object. prepare is called
// once for each Select, and returns the function that returns the value of an object. If prepare
// returns nil, all objects are equal.
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
		weigh := ordinals[T](func() []V { return valuesOf(facts.Objects, value) })
		if word != nil {
			weigh = each(func(obj T) int64 { return word(value(obj)) })
		}
		return &column[T]{
			weigh: []weigher[T]{weigh},
			value: func(_ time.Time, _ int, obj T) string { return fmt.Sprint(value(obj)) },
		}
	}
	return c
}

var errNilFunction = errors.New("function is nil")

// equal returns a column by which all objects are equal.
func equal[T any]() *column[T] {
	return &column[T]{value: func(time.Time, int, T) string { return "" }}
}

func valuesOf[T, V any](objs []T, value func(T) V) []V {
	values := make([]V, len(objs))
	for i, obj := range objs {
		values[i] = value(obj)
	}
	return values
}

// wordOf returns the function that converts a value to a weight. If values of the type do not fit
// into a weight, wordOf returns nil.
func wordOf[V cmp.Ordered]() func(V) int64 {
	switch kind := reflect.TypeFor[V]().Kind(); {
	case kind >= reflect.Int && kind <= reflect.Int64:
		return func(v V) int64 { return reflect.ValueOf(v).Int() }
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		return func(v V) int64 { return int64(reflect.ValueOf(v).Uint() ^ 1<<63) }
	}
	return nil
}

// ordinals returns a weigher that weighs an object by the position of its value among the sorted
// values of all objects. all returns the values of all objects.
func ordinals[T any, V cmp.Ordered](all func() []V) weigher[T] {
	sort := sync.OnceValues(func() (values, sorted []V) {
		values = all()
		sorted = slices.Clone(values)
		slices.Sort(sorted)
		return values, sorted
	})
	return eachPlace[T](func(place int32) int64 {
		values, sorted := sort()
		ordinal, _ := slices.BinarySearch(sorted, values[place])
		return int64(ordinal)
	})
}

// First returns a criterion that puts objects first for which the function returns true. The
// comment on By says how often the function is called.
func First[T any](name string, is func(T) bool) Criterion[T] {
	no, negative := strings.CutPrefix(name, "not ")
	if !negative {
		no = "not " + name
	}
	return flag(name, name, no, is)
}

// flag is like First, with texts for both results of the function.
func flag[T any](name, yes, no string, is func(T) bool) Criterion[T] {
	c := Criterion[T]{name: name, phrase: victimHere}
	if is == nil {
		c.err = errNilFunction
	}
	col := &column[T]{
		weigh: []weigher[T]{each(func(obj T) int64 {
			if is(obj) {
				return 0
			}
			return 1
		})},
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

// ByTime returns a criterion by which the object with the earlier time goes first. The zero time is
// the earliest. The comment on By says how often the function is called. If the times of two
// objects are in the same second, the function is called once more for each of the two.
func ByTime[T any](name string, at func(T) time.Time) Criterion[T] {
	c := Criterion[T]{name: name, phrase: name + " " + victimHere + " < " + survivorHere}
	if at == nil {
		c.err = errNilFunction
	}
	col := &column[T]{
		weigh: byInstant(at, 1),
		value: func(_ time.Time, _ int, obj T) string { return timeText(at(obj), time.Time{}) },
	}
	c.open = func(Facts[T]) *column[T] { return col }
	return c
}

// byInstant returns a weigher for the seconds of a time and a weigher for the nanoseconds. Both
// multiply the weight by sign. The zero time comes first.
func byInstant[T any](at func(T) time.Time, sign int64) []weigher[T] {
	seconds := func(obj T) int64 {
		t := at(obj)
		if t.IsZero() {
			return math.MinInt64
		}
		return sign * t.Unix()
	}
	return []weigher[T]{each(seconds), each(func(obj T) int64 { return sign * int64(at(obj).Nanosecond()) })}
}

// Newest returns a criterion by which the object that was created last goes first. Objects without
// a creation time go before all others.
//
// Newest compares creation times exactly, to the nanosecond. CreationTime is Kubernetes' rule for
// pods, which compares ages only roughly.
func Newest[T metav1.Object]() Criterion[T] {
	return created[T]("newest", -1, " < ", " > ")
}

// Oldest returns a criterion by which the object that was created first goes first. Objects without
// a creation time go before all others.
func Oldest[T metav1.Object]() Criterion[T] {
	return created[T]("oldest", 1, " > ", " < ")
}

func created[T metav1.Object](name string, sign int64, ages, instants string) Criterion[T] {
	at := func(obj T) time.Time { return obj.GetCreationTimestamp().Time }
	col := &column[T]{
		weigh: byInstant(at, sign),
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

// Name returns the name that the criterion has in an Order and in a Victim.
func (c Criterion[T]) Name() string { return c.name }

// Reverse returns the opposite criterion. If c was made by By, the object with the higher value
// then goes first. If c was made by First, objects for which the function returns false go first.
// The name of the criterion stays the same.
func (c Criterion[T]) Reverse() Criterion[T] {
	open := c.open
	if open == nil {
		return c // the zero Criterion
	}
	c.phrase = turned.Replace(c.phrase)
	c.open = func(facts Facts[T]) *column[T] {
		col := *open(facts)
		level, phrase := col.level, col.phrase
		col.weigh = slices.Clone(col.weigh)
		for i, weigh := range col.weigh {
			col.weigh[i] = weigh.reverse()
		}
		if level != nil {
			col.level = func(sorted []int32) weigher[T] { return level(sorted).reverse() }
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

// reverse returns a weigher that puts the objects in the opposite order.
func (w weigher[T]) reverse() weigher[T] {
	return func(facts *Facts[T], objs []weighed) {
		w(facts, objs)
		for i := range objs {
			objs[i].weight = ^objs[i].weight
		}
	}
}

var turned = strings.NewReplacer(" < ", " > ", " > ", " < ")
