// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
)

// keptSpecs are what events need of the specs of owners, as they were last made:
// an orphan is held against every owner of its namespace, and parsing a selector
// takes fifty times as long as matching. The zero value is ready to use.
type keptSpecs[C Object] struct {
	mu   sync.Mutex
	of   map[expectations.Key]keptSpec[C]
	full int // how many there may be before those of owners that are gone are dropped
}

// fewSpecs are not worth a look at which of the owners are there still.
const fewSpecs = 100

type keptSpec[C Object] struct {
	resourceVersion string
	selector        labels.Selector
	err             error
	minReady        time.Duration
	rules           replicas.Rules[C]
	limited         bool // in how much may be deleted
}

func (s *keptSpecs[C]) get(owner expectations.Key) (keptSpec[C], bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, ok := s.of[owner]
	return kept, ok
}

// keep keeps a spec, and reports whether there are so many that some may be of owners
// that are gone: once, until fill is called.
func (s *keptSpecs[C]) keep(owner expectations.Key, kept keptSpec[C]) (full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of, s.full = make(map[expectations.Key]keptSpec[C]), fewSpecs
	}
	s.of[owner] = kept
	if full = len(s.of) > s.full; full {
		s.full = math.MaxInt
	}
	return full
}

// fill tells how many owners are there.
func (s *keptSpecs[C]) fill(owners int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = max(2*owners, fewSpecs)
}

func (s *keptSpecs[C]) keys() []expectations.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}

func (s *keptSpecs[C]) forget(owner expectations.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, owner)
}
