package controller

import (
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
)

// keptSelectors are the selectors of owners as they were last parsed: an orphan is
// held against every owner of its namespace, and parsing takes fifty times as
// long as matching.
type keptSelectors struct {
	mu sync.Mutex
	of map[expectations.Key]keptSelector
}

type keptSelector struct {
	resourceVersion string
	selector        labels.Selector
	err             error
}

// selectorOf returns the selector of this version of the owner. It asks the Kind
// for it only once, if the owner has a version, and if an error can not pass by
// itself.
func (r *reconciler[O, C]) selectorOf(owner O) (labels.Selector, error) {
	s := &r.selectors
	key, version := expectations.KeyOf(owner), owner.GetResourceVersion()
	s.mu.Lock()
	kept, ok := s.of[key]
	s.mu.Unlock()
	if ok && kept.resourceVersion == version {
		return kept.selector, kept.err
	}
	spec, err := r.kind.Spec(owner)
	var refused *replicas.RefusedError
	if key.UID != "" && version != "" && (err == nil || errors.As(err, &refused)) {
		s.keep(key, keptSelector{version, spec.Selector, err})
	}
	return spec.Selector, err
}

func (s *keptSelectors) keep(owner expectations.Key, kept keptSelector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[expectations.Key]keptSelector)
	}
	s.of[owner] = kept
}

func (s *keptSelectors) forget(owner expectations.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, owner)
}
