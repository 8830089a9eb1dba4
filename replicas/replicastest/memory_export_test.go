// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/replicas/controller"
)

// remember makes the controller remember what another one does.
func (c *Controller[O, C]) remember(other *Controller[O, C]) {
	copyDeep(memory(c.controller), memory(other.controller))
	copyDeep(fieldOf(c.controller, "term"), fieldOf(other.controller, "term"))
}

// memory is what a controller remembers of owners: a map of
// slices of pointers, by name. It is nobody else's business, so there is no other
// way in.
func memory(c *controller.Controller) reflect.Value {
	return writable(fieldOf(c, "owners").FieldByName("m"))
}

func fieldOf(c *controller.Controller, field string) reflect.Value {
	reconciler := reflect.ValueOf(c).Elem().FieldByName("reconciler").Elem().Elem()
	return writable(reconciler.FieldByName(field))
}

// writable is a field of a struct that has an address, exported or not.
func writable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// isShared reports whether values of a type are never changed, or hold nothing that
// is remembered.
func isShared(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[*corev1.Pod]():
		return true
	}
	return t.Kind() == reflect.Interface
}

// isNothing reports whether values of a type are of the moment: a function is one to
// call when the write under way ends.
func isNothing(t reflect.Type) bool {
	return t == reflect.TypeFor[sync.Mutex]() || t == reflect.TypeFor[atomic.Int64]() || t.Kind() == reflect.Func
}

// copyDeep copies a value with all that it points to.
func copyDeep(to, from reflect.Value) {
	switch t := from.Type(); {
	case isNothing(t):
	case isShared(t):
		to.Set(from)
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			copyDeep(writable(to.Field(i)), writable(from.Field(i)))
		}
	case from.Kind() == reflect.Pointer && !from.IsNil():
		to.Set(reflect.New(t.Elem()))
		copyDeep(to.Elem(), from.Elem())
	case from.Kind() == reflect.Slice && !from.IsNil():
		to.Set(reflect.MakeSlice(t, from.Len(), from.Len()))
		for i := range from.Len() {
			copyDeep(to.Index(i), from.Index(i))
		}
	case from.Kind() == reflect.Map && !from.IsNil():
		to.Set(reflect.MakeMapWithSize(t, from.Len()))
		for entry := from.MapRange(); entry.Next(); {
			of, is := reflect.New(t.Elem()).Elem(), reflect.New(t.Elem()).Elem()
			is.Set(entry.Value())
			copyDeep(of, is)
			to.SetMapIndex(entry.Key(), of)
		}
	default:
		to.Set(from)
	}
}
