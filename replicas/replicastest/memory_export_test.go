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

// remember copies the memory of another controller into this controller.
func (c *Controller[O, C]) remember(other *Controller[O, C]) {
	copyDeep(memory(c.controller), memory(other.controller))
	copyDeep(fieldOf(c.controller, "term"), fieldOf(other.controller, "term"))
}

// memory returns everything that a controller remembers about its owners. The result is a map from names to
// slices of pointers. The map is read by reflection, because the controller does not export it.
func memory(c *controller.Controller) reflect.Value {
	return writable(fieldOf(c, "owners").FieldByName("m"))
}

func fieldOf(c *controller.Controller, field string) reflect.Value {
	reconciler := reflect.ValueOf(c).Elem().FieldByName("reconciler").Elem().Elem()
	return writable(reconciler.FieldByName(field))
}

// writable returns the same field as a value that can be set. The field may be unexported, and its struct must
// be addressable.
func writable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// isShared reports whether copyDeep may use the same value in both copies. Values of such a type are never
// changed, or contain nothing that a controller remembers.
func isShared(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[*corev1.Pod]():
		return true
	}
	return t.Kind() == reflect.Interface
}

// isNothing reports whether copyDeep and State leave out the values of a type. The values that are left out are
// locks, counters and functions. A function is only called when the current write ends.
func isNothing(t reflect.Type) bool {
	return t == reflect.TypeFor[sync.Mutex]() || t == reflect.TypeFor[atomic.Int64]() || t.Kind() == reflect.Func
}

// copyDeep copies a value, and everything that the value points to.
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
