// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shrink reduces the value that c points to, in place. It drops elements of slices and maps, and clears fields. If
// fails returns false after a change, shrink undoes the change.
func shrink(c any, fails func() bool) {
	s := &shrinker{fails: fails, tries: 5_000}
	for s.value(reflect.ValueOf(c).Elem()) {
		continue
	}
}

type shrinker struct {
	fails func() bool
	tries int // how many tries are left
}

// try sets v to a smaller value. If the case then no longer fails, try restores the old value and returns false.
func (s *shrinker) try(v, smaller reflect.Value) bool {
	if s.tries == 0 || !v.CanSet() {
		return false
	}
	s.tries--
	before := reflect.New(v.Type()).Elem()
	before.Set(v)
	v.Set(smaller)
	if s.fails() {
		return true
	}
	v.Set(before)
	return false
}

// value tries to reduce v or parts of v, and reports whether it succeeded.
func (s *shrinker) value(v reflect.Value) bool {
	if v.IsZero() {
		return false
	}
	if s.try(v, reflect.Zero(v.Type())) {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer:
		return s.value(v.Elem())
	case reflect.Slice:
		return s.slice(v)
	case reflect.Map:
		return s.mapping(v)
	case reflect.Struct:
		return s.structure(v)
	}
	return false
}

func (s *shrinker) slice(v reflect.Value) (smaller bool) {
	for size := v.Len() / 2; size > 0; size /= 2 {
		for from := 0; from+size <= v.Len(); {
			rest := reflect.MakeSlice(v.Type(), 0, v.Len()-size)
			rest = reflect.AppendSlice(rest, v.Slice(0, from))
			rest = reflect.AppendSlice(rest, v.Slice(from+size, v.Len()))
			if s.try(v, rest) {
				smaller = true
				continue
			}
			from += size
		}
	}
	for i := range v.Len() {
		smaller = s.value(v.Index(i)) || smaller
	}
	return smaller
}

func (s *shrinker) mapping(v reflect.Value) (smaller bool) {
	for _, key := range v.MapKeys() {
		rest := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			if !k.Equal(key) {
				rest.SetMapIndex(k, v.MapIndex(k))
			}
		}
		smaller = s.try(v, rest) || smaller
	}
	return smaller
}

func (s *shrinker) structure(v reflect.Value) (smaller bool) {
	if isTime(v) {
		return false
	}
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			smaller = s.value(v.Field(i)) || smaller
		}
	}
	return smaller
}

func isTime(v reflect.Value) bool {
	return v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[metav1.Time]()
}

// dump returns a value as text, without its zero fields. After shrinking, the remaining fields are the ones that
// make the case fail.
func dump(value any) string {
	var b strings.Builder
	dumpTo(&b, reflect.ValueOf(value), "  ")
	return b.String()
}

func dumpTo(b *strings.Builder, v reflect.Value, indent string) {
	switch {
	case !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil():
		b.WriteString("nil")
	case isTime(v) && v.Type() == reflect.TypeFor[metav1.Time]():
		dumpTo(b, v.Field(0), indent)
	case isTime(v):
		fmt.Fprintf(b, "%s", v.Interface().(time.Time).Format(time.RFC3339Nano))
	case v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface:
		dumpTo(b, v.Elem(), indent)
	case v.Kind() == reflect.Struct:
		b.WriteString("{")
		for i := range v.NumField() {
			if f := v.Field(i); v.Type().Field(i).IsExported() && !f.IsZero() {
				fmt.Fprintf(b, "\n%s%s: ", indent, v.Type().Field(i).Name)
				dumpTo(b, f, indent+"  ")
			}
		}
		b.WriteString("}")
	case v.Kind() == reflect.Slice:
		b.WriteString("[")
		for i := range v.Len() {
			fmt.Fprintf(b, "\n%s%d: ", indent, i)
			dumpTo(b, v.Index(i), indent+"  ")
		}
		b.WriteString("]")
	case v.Kind() == reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprintf(b, "%v", v)
	}
}

// shrink keeps only the parts of an input that cause the failure, and dump prints only these parts.
func TestShrink(t *testing.T) {
	t.Parallel()
	type item struct {
		Name   string
		Labels map[string]string
		Since  metav1.Time
		Count  *int
	}
	n := 7
	items := make([]*item, 20)
	for i := range items {
		items[i] = &item{Name: "x", Labels: map[string]string{"a": "1", "b": "2"}, Since: metav1.Now(), Count: &n}
	}
	shrink(&items, func() bool {
		return slices.ContainsFunc(items, func(i *item) bool { return i != nil && i.Labels["b"] == "2" })
	})
	assert.Equal(t, []*item{{Labels: map[string]string{"b": "2"}}}, items)
	assert.Equal(t, "[\n  0: {\n    Labels: map[b:2]}]", dump(items))
}
