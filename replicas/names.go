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

// The API server uses at most 58 characters of a generateName and appends 5 characters. A generated
// name therefore has at most 63 characters and can also be the value of a label (W11).
const (
	maxNamePrefix = 58
	// A plan may call Facts.Names once for each new name, once for each object in the list, and spareTries times.
	spareTries = 100
)

// names chooses the names of n new children, so that none belongs to an object in objs.
func (s *Spec[T]) names(n int, free []string, objs []T, occupancy *occupancy[T]) ([]string, error) {
	if s.Slots != nil && occupancy == nil {
		return free[:n], nil
	}
	if s.Facts.Names == nil || n == 0 {
		return nil, nil
	}
	taken := sets.New(s.Facts.Taken...)
	for _, obj := range join(objs, s.Facts.Undecided) {
		taken.Insert(obj.GetName())
	}
	names := make([]string, 0, n)
	prefix := generateName(s.base())
	prefix = prefix[:min(len(prefix), maxNamePrefix)]
	// The creation of web-x7 had no answer, and web-x7 holds a place for five minutes. Sent again, it makes no second
	// child, and fills the place at once.
	for _, name := range s.Facts.CreationsInFlight {
		if occupancy == nil && len(names) < n && strings.HasPrefix(name, prefix) && !taken.Has(name) {
			taken.Insert(name)
			names = append(names, name)
		}
	}
	check := s.checkNames()
	for tries := n + len(objs) + spareTries; len(names) < n; tries-- {
		if tries == 0 {
			return nil, s.failure("Names returned only %d free names, %d are needed", len(names), n)
		}
		if occupancy != nil {
			slot := free[len(names)]
			// The creation of web-1-x7 had no answer. Under another name, web-1 might get a second child.
			if sent := occupancy.sent[slot]; sent != "" && !taken.Has(sent) {
				names = append(names, sent)
				continue
			}
			prefix = slot + "-"
		}
		name := s.Facts.Names(prefix)
		if err := check(name); err != nil {
			return nil, s.failure("Names returned %q: %w", name, err)
		}
		if (s.GroupOf != nil || s.SlotOf != nil) && baseOf(name)+"-" != prefix { // if its creation has no answer, only its name shows its group or slot
			return nil, s.failure("Names returned %q, and with groups or SlotOf a name must be %q and characters without \"-\"", name, prefix)
		}
		if !taken.Has(name) {
			taken.Insert(name)
			names = append(names, name)
		}
	}
	return names, nil
}

// base returns the part before the "-" in the names of new children.
func (s *Spec[T]) base() string { return cmp.Or(s.BaseName, s.Owner.GetName()) }

// checkNames returns the function that checks the names of children.
func (s *Spec[T]) checkNames() func(name string) error {
	if checkName(s.base()) != nil { // only fake clients accept an owner with an illegal name
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

// generateName returns the owner's name and "-", or the name alone if that is no legal prefix (P4).
func generateName(owner string) string {
	prefix := owner + "-"
	if len(validation.NameIsDNSSubdomain(prefix, true)) > 0 {
		return owner
	}
	return prefix
}
