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

// A Criterion is one question of an Order. It says which of two objects goes first, or neither. By,
// First, ByTime and ByFacts make criteria. Other functions of this package return ready-made
// criteria. A Criterion never changes. It is safe for concurrent use if the functions that it was
// made from are. NewOrder refuses the zero Criterion.
type Criterion[T any] struct {
	name   string
	err    error // why NewOrder refuses it
	phrase string
	open   func(Facts[T]) *column[T]
	check  func(T) error // nil if the criterion can read every object
}

// Facts are what a criterion may look at in addition to the object itself. They are read only.
type Facts[T any] struct {
	// Now is Options.Now.
	Now time.Time
	// Objects are all objects that were passed to Select, without nil ones.
	Objects []T
	// Related is Options.Related.
	Related []T
}

// A column is a criterion in one selection. It does not change once it is made, so selections may
// share it.
type column[T any] struct {
	// weigh are asked one after the other, each about the objects that the one before left equal.
	weigh []weigher[T]
	// level, if not nil, returns the only weigher. It is called before the final ranking, with the
	// places of all objects as the other criteria order them.
	level func(sorted []int32) weigher[T]
	// value returns what the criterion looks at in the object.
	value func(now time.Time, i int, obj T) string
	// phrase, if not nil, returns the words for a decision instead of Criterion.phrase, and their
	// detail.
	phrase func(now time.Time, i int, obj T) (phrase, detail string)
}

// A weigher weighs a few objects. The object with the lower weight goes first.
type weigher[T any] func(facts *Facts[T], objs []weighed)

// weighed is an object, by its place in Facts.Objects, and its weight.
type weighed struct {
	weight int64
	place  int32
}

// each weighs objects one by one.
func each[T any](weight func(obj T) int64) weigher[T] {
	return func(facts *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(facts.Objects[objs[i].place])
		}
	}
}

// eachAt weighs objects one by one, at the instant of the selection.
func eachAt[T any](weight func(obj T, now time.Time) int64) weigher[T] {
	return func(facts *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(facts.Objects[objs[i].place], facts.Now)
		}
	}
}

// eachPlace weighs objects one by one, by their places.
func eachPlace[T any](weight func(place int32) int64) weigher[T] {
	return func(_ *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(objs[i].place)
		}
	}
}

// Placeholders for the values and a detail in the words for a decision.
const (
	victimHere   = "{victim}"
	survivorHere = "{survivor}"
	detailHere   = "{detail}"
)

// By returns a criterion by which the object with the lower value goes first. That is the lower
// number, or the string that sorts first. NaN is the lowest. value is called at most once for each
// object of a Select, and again for Victim.Values and for each Spread of the order. If the higher
// value should go first, use Criterion.Reverse.
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

// equal is the column of a criterion that decides nothing.
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

// wordOf returns the function that makes a weight of a value, or nil if a value does not fit into
// one.
func wordOf[V cmp.Ordered]() func(V) int64 {
	switch kind := reflect.TypeFor[V]().Kind(); {
	case kind >= reflect.Int && kind <= reflect.Int64:
		return func(v V) int64 { return reflect.ValueOf(v).Int() }
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		return func(v V) int64 { return int64(reflect.ValueOf(v).Uint() ^ 1<<63) }
	}
	return nil
}

// ordinals weighs objects by the rank of their values among all values. all returns the values of
// all objects.
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

// First returns a criterion by which objects for which the function returns true go first. By says
// how often the function is called.
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

// ByTime returns a criterion by which the object with the earlier instant goes first. The zero
// instant is the earliest. By says how often the function is called. If the instants of two objects
// are in the same second, it is called once more.
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

// byInstant weighs by seconds, then by nanoseconds, each multiplied by sign. The zero instant comes
// first.
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
// It compares the instants exactly, to the nanosecond. CreationTime is Kubernetes' rule for pods,
// which compares ages only roughly.
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

// Name returns the name of the criterion, as it is in an Order and in a Victim.
func (c Criterion[T]) Name() string { return c.name }

// Reverse returns the opposite criterion. The higher value goes first or, for First, the object for
// which the function returns false. The name stays the same.
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

// reverse reverses the order of the weights.
func (w weigher[T]) reverse() weigher[T] {
	return func(facts *Facts[T], objs []weighed) {
		w(facts, objs)
		for i := range objs {
			objs[i].weight = ^objs[i].weight
		}
	}
}

var turned = strings.NewReplacer(" < ", " > ", " > ", " < ")
