// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions provides the functions of this package as methods for a condition type of your own.
// Call NewConditions once for each of your condition types:
//
//	var conditions = status.Must(status.NewConditions[fleetv1.PoolCondition]())
//	...
//	conditions.SetFailure(&pool.Status.Conditions, outcome.Failure())
//
// The methods of the zero Conditions do nothing. Conditions is safe for concurrent use.
type Conditions[C any] struct{ form *fields }

// fields holds the indices of the fields of a condition type, for reflection.
type fields struct{ conditionType, status, reason, message, transition, observed []int }

// NewConditions returns the Conditions for the struct type C. The fields Type, Status, Reason and
// Message must have the underlying type string. The field LastTransitionTime must have the type
// metav1.Time. The field ObservedGeneration is optional, and must have the underlying type int64.
// The fields may be in an embedded struct, but not behind an embedded pointer. If a field is
// missing or has another type, NewConditions returns an error that names the field. All other
// fields of C are zero in a condition that SetFailure sets.
func NewConditions[C any]() (Conditions[C], error) {
	of, f := reflect.TypeFor[C](), &fields{}
	if of.Kind() != reflect.Struct {
		return Conditions[C]{}, fmt.Errorf("status: conditions: %s is not a struct", of)
	}
	for _, want := range []struct {
		name     string
		place    *[]int
		is       func(reflect.Type) bool
		what     string
		optional bool
	}{
		{"Type", &f.conditionType, isString, "a string", false},
		{"Status", &f.status, isString, "a string", false},
		{"Reason", &f.reason, isString, "a string", false},
		{"Message", &f.message, isString, "a string", false},
		{"LastTransitionTime", &f.transition, isTime, "a metav1.Time", false},
		{"ObservedGeneration", &f.observed, isInt64, "an int64", true},
	} {
		field, found := of.FieldByName(want.name)
		switch {
		case !found && want.optional:
		case !found:
			return Conditions[C]{}, fmt.Errorf("status: conditions: %s has no field %s", of, want.name)
		case len(field.Index) > 1 && of.FieldByIndex(field.Index[:1]).Type.Kind() == reflect.Pointer:
			return Conditions[C]{}, fmt.Errorf("status: conditions: field %s of %s is behind an embedded pointer", want.name, of)
		case !want.is(field.Type):
			return Conditions[C]{}, fmt.Errorf("status: conditions: field %s of %s is of type %s: want %s", want.name, of, field.Type, want.what)
		}
		*want.place = field.Index
	}
	return Conditions[C]{f}, nil
}

// Must returns its first argument. If the second argument is an error, Must panics with this error.
// Use Must to initialize a variable with the result of NewConditions.
func Must[C any](c Conditions[C], err error) Conditions[C] {
	if err != nil {
		panic(err)
	}
	return c
}

func isString(t reflect.Type) bool { return t.Kind() == reflect.String }
func isInt64(t reflect.Type) bool  { return t.Kind() == reflect.Int64 }
func isTime(t reflect.Type) bool   { return t == reflect.TypeFor[metav1.Time]() }

// Get returns a copy of the first condition of the given type, or nil if there is none.
func (c Conditions[C]) Get(conditions []C, conditionType string) *C {
	if c.form == nil {
		return nil
	}
	return get(own[C]{c.form}, conditions, conditionType)
}

// Set does what SetCondition does. If C has a field ObservedGeneration, the field is updated as in
// a metav1.Condition.
func (c Conditions[C]) Set(conditions *[]C, condition C) {
	if c.form != nil {
		set(own[C]{c.form}, conditions, condition)
	}
}

// Remove does what RemoveCondition does.
func (c Conditions[C]) Remove(conditions *[]C, conditionType string) {
	if c.form != nil && conditions != nil {
		*conditions = without(own[C]{c.form}, *conditions, conditionType)
	}
}

// SetFailure does what the function SetFailure does, but the reason may be empty, and the message
// is not truncated.
func (c Conditions[C]) SetFailure(conditions *[]C, f Failure) {
	if c.form != nil {
		setFailure(own[C]{c.form}, conditions, f)
	}
}

// own[C] implements the interface form[C]. The condition type C is defined by the caller.
type own[C any] struct{ *fields }

func (o own[C]) read(c *C) (conditionType, status, reason string) {
	v := reflect.ValueOf(c).Elem()
	return v.FieldByIndex(o.conditionType).String(), v.FieldByIndex(o.status).String(), v.FieldByIndex(o.reason).String()
}

func (o own[C]) messageOf(c *C) string {
	return reflect.ValueOf(c).Elem().FieldByIndex(o.message).String()
}

func (o own[C]) failure(f Failure) (condition C) {
	v := reflect.ValueOf(&condition).Elem()
	v.FieldByIndex(o.conditionType).SetString(ReplicaFailure)
	v.FieldByIndex(o.status).SetString(string(metav1.ConditionTrue))
	v.FieldByIndex(o.reason).SetString(f.reason())
	v.FieldByIndex(o.message).SetString(f.Err.Error())
	v.FieldByIndex(o.transition).Set(reflect.ValueOf(metav1.NewTime(f.Now)))
	if o.observed != nil {
		v.FieldByIndex(o.observed).SetInt(f.ObservedGeneration)
	}
	return condition
}

func (o own[C]) observe(c, newer *C) bool {
	if o.observed == nil {
		return false
	}
	is, now := reflect.ValueOf(c).Elem().FieldByIndex(o.observed), reflect.ValueOf(newer).Elem().FieldByIndex(o.observed)
	if is.Int() == now.Int() {
		return false
	}
	is.SetInt(now.Int())
	return true
}
