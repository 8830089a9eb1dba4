// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These names are reserved. If no criterion of the order decided, Victim.Criterion is one of these
// names. NewOrder refuses criteria with these names.
const (
	None     = "none"      // the two objects do not differ
	MustGo   = "must-go"   // Options.MustGo decides
	MustStay = "must-stay" // Options.MustStay decides
	UID      = "uid"       // the lexically smaller UID comes first
	Name     = "name"      // the lexically smaller namespace comes first, then the smaller name
	All      = "all"       // no object survives
)

// An Order is a list of criteria that defines which of two objects comes first. If the two objects
// differ in several criteria, the first of these criteria decides. If the objects do not differ in
// any criterion, they are ordered by UID, then by namespace, then by name. NewOrder makes an Order.
// For pods, the zero Order means Kubernetes(). For other objects, the zero Order has only the
// criterion Newest.
//
// An Order is immutable. If its criteria are safe for concurrent use, the Order is safe too.
type Order[T metav1.Object] struct {
	criteria []Criterion[T]
}

// NewOrder returns an Order with the given criteria. NewOrder returns an error if there are no
// criteria, or if the name of a criterion is empty, reserved or used twice. NewOrder also returns
// an error if a criterion was made with a nil function or another invalid argument. The error
// identifies the criterion.
func NewOrder[T metav1.Object](criteria ...Criterion[T]) (Order[T], error) {
	if len(criteria) == 0 {
		return Order[T]{}, errors.New("podrank: order has no criteria")
	}
	reserved := []string{None, MustGo, MustStay, UID, Name, All}
	for i, c := range criteria {
		switch {
		case c.name == "":
			return Order[T]{}, fmt.Errorf("podrank: criterion %d has no name", i)
		case c.err != nil:
			return Order[T]{}, fmt.Errorf("podrank: criterion %q: %w", c.name, c.err)
		case slices.Contains(reserved, c.name):
			return Order[T]{}, fmt.Errorf("podrank: criterion %q: the name is reserved", c.name)
		case index(criteria[:i], c.name) >= 0:
			return Order[T]{}, fmt.Errorf("podrank: criterion %q is listed twice", c.name)
		}
	}
	return Order[T]{criteria: slices.Clone(criteria)}, nil
}

func index[T any](criteria []Criterion[T], name string) int {
	return slices.IndexFunc(criteria, func(c Criterion[T]) bool { return c.name == name })
}

// Must returns the given order. If the given error is not nil, it panics with this error. Like
// regexp.MustCompile, Must is for the initialization of package variables.
func Must[T metav1.Object](order Order[T], err error) Order[T] {
	if err != nil {
		panic(err)
	}
	return order
}

// Kubernetes returns the deletion order of Kubernetes' ReplicaSet controller. The criteria of this
// order are Unassigned, Phase, NotReady, DeletionCost, Colocation, ReadyTime, Restarts,
// SidecarRestarts and CreationTime. The package comment lists the differences from Kubernetes.
func Kubernetes() Order[*corev1.Pod] { return kubernetes }

var kubernetes = Must(NewOrder(
	Unassigned(),
	Phase(),
	NotReady(),
	DeletionCost(),
	Colocation(),
	ReadyTime(),
	Restarts(),
	SidecarRestarts(),
	CreationTime(),
))

// Criteria returns a copy of the list of criteria. The list does not include UID, namespace and
// name, which are compared last in every Order. For the zero Order, the list is nil.
func (o Order[T]) Criteria() []Criterion[T] { return slices.Clone(o.criteria) }

// Without returns a copy of the Order that lacks the criteria with these names. It returns an error
// if the Order does not contain one of the names, or if no criterion remains.
func (o Order[T]) Without(names ...string) (Order[T], error) {
	criteria := o.orDefault().Criteria()
	for _, name := range names {
		i := index(criteria, name)
		if i < 0 {
			return Order[T]{}, o.unknown(name)
		}
		criteria = slices.Delete(criteria, i, i+1)
	}
	return NewOrder(criteria...)
}

// Before returns a copy of the Order with the given criteria inserted directly before the criterion
// with the given name. It returns an error if the Order does not contain this name, or if NewOrder
// refuses the result.
func (o Order[T]) Before(name string, criteria ...Criterion[T]) (Order[T], error) {
	all := o.orDefault().Criteria()
	i := index(all, name)
	if i < 0 {
		return Order[T]{}, o.unknown(name)
	}
	return NewOrder(slices.Insert(all, i, criteria...)...)
}

func (o Order[T]) unknown(name string) error {
	return fmt.Errorf("podrank: criterion %q is not in the order %s", name, o)
}

// String returns the names of the criteria, separated by commas.
func (o Order[T]) String() string {
	var names []string
	for _, c := range o.orDefault().criteria {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// orDefault returns the Order, or the default Order if o is zero.
func (o Order[T]) orDefault() Order[T] {
	if len(o.criteria) > 0 {
		return o
	}
	if pods, ok := any(&kubernetes).(*Order[T]); ok {
		return *pods
	}
	return Order[T]{criteria: []Criterion[T]{Newest[T]()}}
}
