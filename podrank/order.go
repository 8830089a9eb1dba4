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

// Victim.Criterion has one of these names if no criterion of the order decided. A
// criterion cannot have one of these names.
const (
	None     = "none"      // the two objects do not differ
	MustGo   = "must-go"   // Options.MustGo
	MustStay = "must-stay" // Options.MustStay
	UID      = "uid"       // the lexically smaller goes first
	Name     = "name"      // the lexically smaller namespace, then name, goes first
	All      = "all"       // no object survives
)

// An Order says which of two objects goes first. The first of its criteria on which the two differ
// decides. If there is none, UID, then namespace, then name decide. NewOrder makes an Order. The
// zero Order means Kubernetes() for pods, and the order of Newest for other objects.
//
// An Order never changes. It is safe for concurrent use if its criteria are.
type Order[T metav1.Object] struct {
	criteria []Criterion[T]
}

// NewOrder returns the order of the criteria. It is an error if there are no
// criteria, or if a criterion has no name, the same name as another criterion, a
// name that Victim uses for something else, a nil function or a bad number. The
// error names the criterion.
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

// Must returns the order, and panics if err is not nil. Use it for package variables, like
// regexp.MustCompile.
func Must[T metav1.Object](order Order[T], err error) Order[T] {
	if err != nil {
		panic(err)
	}
	return order
}

// Kubernetes returns the order in which Kubernetes' ReplicaSet controller deletes
// pods: Unassigned, Phase, NotReady, DeletionCost, Colocation, ReadyTime,
// Restarts, SidecarRestarts and CreationTime. The package comment says where it
// differs.
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

// Criteria returns the criteria in their order, without UID, namespace and name, which come last in
// every order. The slice is a copy. It is nil for the zero Order.
func (o Order[T]) Criteria() []Criterion[T] { return slices.Clone(o.criteria) }

// Without returns a new order without the criteria that have these names. If
// there is no criterion with such a name, or if no criterion is left, it is an
// error.
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

// Before returns a new order with more criteria in front of the criterion that
// has the given name. If there is no such criterion, or if NewOrder would refuse
// the result, it is an error.
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

// String returns the names of the criteria.
func (o Order[T]) String() string {
	var names []string
	for _, c := range o.orDefault().criteria {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// orDefault returns the order, or the default if it is zero.
func (o Order[T]) orDefault() Order[T] {
	if len(o.criteria) > 0 {
		return o
	}
	if pods, ok := any(&kubernetes).(*Order[T]); ok {
		return *pods
	}
	return Order[T]{criteria: []Criterion[T]{Newest[T]()}}
}
