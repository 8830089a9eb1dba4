// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Spread keeps the objects evenly distributed over domains, such as nodes or zones. Each victim is
// taken from the domain with the most remaining objects. Within this domain, the other criteria
// decide. Objects for which the function returns an empty string share one domain.
//
// Spread counts the objects in Options.Related. If Related is empty, Spread counts the objects that
// were passed to Select. Objects that are being deleted do not count.
func Spread[T metav1.Object](name string, domain func(T) string) Criterion[T] {
	c := Criterion[T]{name: name, phrase: victimHere + " > " + survivorHere}
	if domain == nil {
		c.err = errNilFunction
	}
	c.open = func(facts Facts[T]) *column[T] {
		d := newDomains(facts, domain)
		return &column[T]{
			level: func(sorted []int32) weigher[T] {
				left := d.counts
				for _, i := range sorted {
					d.count[i] = left[d.of[i]]
					left[d.of[i]]--
				}
				return eachPlace[T](func(place int32) int64 { return -d.count[place] })
			},
			value: countIn[T](d, name),
		}
	}
	return c
}

// Packed empties domains, such as nodes, one after the other. Objects in the domain with the fewest
// objects come first. Packed counts objects in the same way as Spread. If two domains have the same
// number of objects, the domain whose name sorts first is emptied first.
func Packed[T metav1.Object](name string, domain func(T) string) Criterion[T] {
	c := Criterion[T]{name: name, phrase: victimHere + " < " + survivorHere}
	if domain == nil {
		c.err = errNilFunction
	}
	c.open = func(facts Facts[T]) *column[T] {
		d := newDomains(facts, domain)
		for i, name := range d.of {
			d.count[i] = d.counts[name]
		}
		count := eachPlace[T](func(place int32) int64 { return d.count[place] })
		return &column[T]{weigh: []weigher[T]{count, ordinals[T](func() []string { return d.of })}, value: countIn[T](d, name)}
	}
	return c
}

// domains holds the domain of each object and the number of objects in each domain.
type domains struct {
	counts map[string]int64
	of     []string // the domain of each object
	count  []int64  // the count that determines the rank of each object
}

func newDomains[T metav1.Object](facts Facts[T], domain func(T) string) *domains {
	d := &domains{counts: make(map[string]int64), of: valuesOf(facts.Objects, domain), count: make([]int64, len(facts.Objects))}
	counted := facts.Objects
	if len(facts.Related) > 0 {
		counted = withoutNil(facts.Related)
	}
	for _, obj := range counted {
		if obj.GetDeletionTimestamp() == nil {
			d.counts[domain(obj)]++
		}
	}
	return d
}

// countIn returns a function that appends the count of an object, for example "3 in zone-a".
func countIn[T any](d *domains, name string) func(text []byte, now time.Time, i int, obj T) []byte {
	return func(text []byte, _ time.Time, i int, _ T) []byte {
		text = append(strconv.AppendInt(text, d.count[i], 10), " in "...)
		if d.of[i] == "" {
			return append(append(text, "no "...), name...)
		}
		return append(text, d.of[i]...)
	}
}

// Topology is like Spread, but the domains are the values of a node label, such as
// topology.kubernetes.io/zone. The map contains the label value of each node, keyed by node name.
// One domain contains all pods without a node and all pods whose node is not in the map. Check
// returns an error for pods whose node is not in the map. If the map is empty or contains an empty
// value, NewOrder returns an error.
func Topology(name string, values map[string]string) Criterion[*corev1.Pod] {
	c := Spread(name, func(p *corev1.Pod) string { return values[p.Spec.NodeName] })
	if len(values) == 0 {
		c.err = errors.New("no node has a value")
	}
	for _, node := range slices.Sorted(maps.Keys(values)) {
		if values[node] == "" {
			c.err = cmp.Or(c.err, fmt.Errorf("node %q has an empty value", node))
		}
	}
	c.check = func(p *corev1.Pod) error {
		if node := p.Spec.NodeName; node != "" && values[node] == "" {
			return fmt.Errorf("node %q has no value", node)
		}
		return nil
	}
	return c
}
