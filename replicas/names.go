// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"cmp"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
)

// What the API server makes of a generateName: at most 58 characters of it and 5
// more, together no longer than the label values that names often become (W11).
const (
	maxNamePrefix = 58
	// spareTries is how often Spec.Names may be asked in vain, beside once for
	// each child that there is.
	spareTries = 100
)

// names returns n names for new children that no object of objs has, those in flight first. If
// the spec has slots, they are the first of those that are free.
func (s *Spec[T]) names(n int, free []string, objs []T) ([]string, error) {
	if s.Slots != nil {
		return free[:n], nil
	}
	if s.Names == nil || n == 0 {
		return nil, nil
	}
	taken := sets.New(s.Taken...)
	for _, obj := range objs {
		taken.Insert(obj.GetName())
	}
	prefix := generateName(s.base())
	prefix = prefix[:min(len(prefix), maxNamePrefix)]
	check := s.checkNames()
	names := make([]string, 0, n)
	for _, name := range s.CreationsInFlight {
		if len(names) < n && strings.HasPrefix(name, prefix) && !taken.Has(name) {
			taken.Insert(name)
			names = append(names, name)
		}
	}
	for tries := n + len(objs) + spareTries; len(names) < n; tries-- {
		if tries == 0 {
			return nil, s.failure("Names returned only %d free names, %d are needed", len(names), n)
		}
		name := s.Names(prefix)
		if err := check(name); err != nil {
			return nil, s.failure("Names returned %q: %w", name, err)
		}
		if !taken.Has(name) {
			taken.Insert(name)
			names = append(names, name)
		}
	}
	return names, nil
}

// base is what the names of new children begin with.
func (s *Spec[T]) base() string { return cmp.Or(s.BaseName, s.Owner.GetName()) }

// checkNames returns what checks the names of children.
func (s *Spec[T]) checkNames() func(name string) error {
	if checkName(s.base()) != nil { // no API server has it, but fake clients do
		return checkNotEmpty
	}
	return checkName
}

func checkNotEmpty(name string) error {
	if name == "" {
		return errors.New("it is empty")
	}
	return nil
}

// generateName is the owner's name and "-", or the bare name where that would be
// no legal prefix (P4).
func generateName(owner string) string {
	prefix := owner + "-"
	if len(validation.NameIsDNSSubdomain(prefix, true)) > 0 {
		return owner
	}
	return prefix
}
