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

// A Criterion is one step of an Order. It decides which of two objects comes first, or whether they
// are equal. The functions By, First, ByTime, ByFacts and ByComparison make a Criterion from your own
// function.
// Other functions of this package return ready-made criteria. A Criterion is immutable. It is safe
// for concurrent use if your own functions are safe for concurrent use. NewOrder refuses the zero
// Criterion.
type Criterion[T any] struct {
	name   string
	err    error // the reason why NewOrder refuses the criterion, or nil
	phrase string
	open   func(Facts[T]) *column[T]
	check  func(T) error // may be nil; returns an error if the criterion cannot read the object
}

// Facts holds the data that a criterion may use in addition to the object itself. A criterion must
// not change this data.
type Facts[T any] struct {
	// Now is Options.Now.
	Now time.Time
	// Objects holds the objects that were passed to Select, without nil objects.
	Objects []T
	// Related is Options.Related.
	Related []T
}

// A column holds the functions that a criterion uses with the given Facts. A column is immutable,
// so several calls of Select may share it.
type column[T any] struct {
	// weigh contains the weighers of the criterion, in the order of use. Each weigher is applied
	// only to objects that got equal weights from all earlier weighers.
	weigh []weigher[T]
	// If the function level is not nil, it is called before the final ranking. The function returns
	// a weigher, which replaces the list in the field weigh. The argument holds the places of all
	// objects, in the order of the other criteria that have weighers.
	level func(sorted []int32) weigher[T]
	// value appends the object's value for this criterion to text, for Victim.Values.
	value func(text []byte, now time.Time, i int, obj T) []byte
	// The function phrase returns the template for the result of Victim.Explain, and the detail to
	// insert into the template. If the function is nil, Criterion.phrase is the template, and there
	// is no detail.
	phrase func(now time.Time, i int, obj T) (phrase, detail string)
}

// A weigher sets the weights of some objects. The object with the lower weight comes first.
type weigher[T any] func(facts *Facts[T], objs []weighed)

// A weighed holds the weight and the place of an object. The place is the index of the object in
// Facts.Objects.
type weighed struct {
	weight int64
	place  int32
}

// each(weight) returns a weigher that calls the function weight for each object.
func each[T any](weight func(obj T) int64) weigher[T] {
	return func(facts *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(facts.Objects[objs[i].place])
		}
	}
}

// eachAt returns a weigher that calls the function weight for each object, with Facts.Now.
func eachAt[T any](weight func(obj T, now time.Time) int64) weigher[T] {
	return func(facts *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(facts.Objects[objs[i].place], facts.Now)
		}
	}
}

// eachPlace returns a weigher that calls the function weight for the place of each object.
func eachPlace[T any](weight func(place int32) int64) weigher[T] {
	return func(_ *Facts[T], objs []weighed) {
		for i := range objs {
			objs[i].weight = weight(objs[i].place)
		}
	}
}

// Victim.Explain replaces these placeholders in a phrase with the values and the detail of the
// Victim.
const (
	victimHere   = "{victim}"
	survivorHere = "{survivor}"
	detailHere   = "{detail}"
)

// By returns a criterion that orders objects by their values. The object with the lower value comes
// first. Strings are compared byte by byte. NaN is lower than any number. To rank the objects,
// Select calls the given function at most once for each object. Select calls it again for
// Victim.Values and for each Spread criterion of the order. To put the object with the higher value
// first, use Criterion.Reverse.
func By[T any, V cmp.Ordered](name string, value func(T) V) Criterion[T] {
	c := ByFacts(name, func(Facts[T]) func(T) V { return value })
	if value == nil {
		c.err = errNilFunction
	}
	return c
}

// ByFacts is like By, but the value of an object may also depend on other objects. Select calls the
// function prepare once. This function returns another function, which computes the value of an
// object. If prepare returns nil, all objects are equal.
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
			value: func(text []byte, _ time.Time, _ int, obj T) []byte { return fmt.Append(text, value(obj)) },
		}
	}
	return c
}

var errNilFunction = errors.New("function is nil")

// equal() returns a column that treats all objects as equal.
func equal[T any]() *column[T] {
	return &column[T]{value: func(text []byte, _ time.Time, _ int, _ T) []byte { return text }}
}

func valuesOf[T, V any](objs []T, value func(T) V) []V {
	values := make([]V, len(objs))
	for i, obj := range objs {
		values[i] = value(obj)
	}
	return values
}

// wordOf returns a function that converts a value of type V to a weight. If V is not an integer
// type, the result is nil.
func wordOf[V cmp.Ordered]() func(V) int64 {
	switch kind := reflect.TypeFor[V]().Kind(); {
	case kind >= reflect.Int && kind <= reflect.Int64:
		return func(v V) int64 { return reflect.ValueOf(v).Int() }
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		return func(v V) int64 { return int64(reflect.ValueOf(v).Uint() ^ 1<<63) }
	}
	return nil
}

// ordinals returns a weigher that sorts the values of all objects. The weight of an object is the
// position of its value. The parameter all is a function that returns the values of all objects.
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

// First returns a criterion for a condition. Objects for which the function returns true come
// before all other objects. The comment on By describes how often the function is called.
func First[T any](name string, is func(T) bool) Criterion[T] {
	no, negative := strings.CutPrefix(name, "not ")
	if !negative {
		no = "not " + name
	}
	return flag(name, name, no, is)
}

// flag is like First, but the caller also passes the values yes and no for Victim.Values.
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
		value: func(text []byte, _ time.Time, _ int, obj T) []byte {
			if is(obj) {
				return append(text, yes...)
			}
			return append(text, no...)
		},
	}
	c.open = func(Facts[T]) *column[T] { return col }
	return c
}

// ByTime returns a criterion that puts the object with the earlier time first. The zero time comes
// before all other times. The comment on By describes how often the function is called. The
// function is called again for objects whose times are in the same second.
func ByTime[T any](name string, at func(T) time.Time) Criterion[T] {
	c := Criterion[T]{name: name, phrase: name + " " + victimHere + " < " + survivorHere}
	if at == nil {
		c.err = errNilFunction
	}
	col := &column[T]{
		weigh: byInstant(at, 1),
		value: func(text []byte, _ time.Time, _ int, obj T) []byte { return appendTime(text, at(obj), time.Time{}) },
	}
	c.open = func(Facts[T]) *column[T] { return col }
	return c
}

// ByComparison returns a criterion that compares two objects at a time, for orders that cannot be
// said with one value for each object. The function compare returns a negative number if a comes
// first, a positive number if b comes first, and 0 if they are equal, as for slices.SortFunc. It must
// be a strict weak ordering, or the victims depend on the order of the list. Select compares only
// objects that are equal in all earlier criteria. If there is a value for each object, By is faster.
//
// Victim.Values holds the names of the two objects, because a comparison has no values. Explain
// returns the name of the criterion and the survivor, such as "load: before default/web-b".
func ByComparison[T metav1.Object](name string, compare func(a, b T) int) Criterion[T] {
	c := Criterion[T]{name: name, phrase: name + ": before " + survivorHere}
	if compare == nil {
		c.err = errNilFunction
	}
	col := &column[T]{
		weigh: []weigher[T]{func(facts *Facts[T], objs []weighed) {
			order := func(a, b weighed) int { return compare(facts.Objects[a.place], facts.Objects[b.place]) }
			slices.SortFunc(objs, order)
			weight := int64(0)
			for i := range objs {
				if i > 0 && order(objs[i-1], objs[i]) != 0 {
					weight++
				}
				objs[i].weight = weight
			}
		}},
		value: func(text []byte, _ time.Time, _ int, obj T) []byte { return append(text, fullName(obj)...) },
	}
	c.open = func(Facts[T]) *column[T] { return col }
	return c
}

// byInstant returns a weigher for the seconds of a time and a weigher for its nanoseconds. If sign
// is 1, the earlier time comes first. If sign is -1, the later time comes first. The zero time
// always comes first.
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

// Newest returns a criterion that puts the object with the later creation time first. Objects
// without a creation time come before all other objects.
//
// Newest compares creation times exactly, to the nanosecond. CreationTime follows Kubernetes' rule
// for pods, which compares ages only roughly.
func Newest[T metav1.Object]() Criterion[T] {
	return created[T]("newest", -1, " < ", " > ")
}

// Oldest returns a criterion that puts the object with the earlier creation time first. Objects
// without a creation time come before all other objects.
func Oldest[T metav1.Object]() Criterion[T] {
	return created[T]("oldest", 1, " > ", " < ")
}

func created[T metav1.Object](name string, sign int64, ages, instants string) Criterion[T] {
	at := func(obj T) time.Time { return obj.GetCreationTimestamp().Time }
	col := &column[T]{
		weigh: byInstant(at, sign),
		value: func(text []byte, now time.Time, _ int, obj T) []byte { return appendTime(text, at(obj), now) },
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

// Name returns the name of the criterion. Order.String and Victim.Criterion use the same name.
func (c Criterion[T]) Name() string { return c.name }

// Reverse returns a criterion with the opposite order and the same name. For example, the reverse
// of a criterion from By puts the object with the higher value first. The reverse of a criterion
// from the function First puts objects for which the condition is false before all other objects.
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
