package controller

import (
	"errors"
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
	mu sync.Mutex
	of map[expectations.Key]keptSpec[C]
}

type keptSpec[C Object] struct {
	resourceVersion string
	selector        labels.Selector
	err             error
	minReady        time.Duration
	rules           replicas.Rules[C]
	limited         bool // in how much may be deleted
}

// selectorOf returns the selector of this version of the owner.
func (w *watcher[O, C]) selectorOf(owner O) (labels.Selector, error) {
	kept := w.specOf(owner)
	return kept.selector, kept.err
}

// specOf returns the spec of this version of the owner. It asks the Kind for it
// only once, if the owner has a version, and if an error can not pass by itself.
func (w *watcher[O, C]) specOf(owner O) keptSpec[C] {
	key, version := expectations.KeyOf(owner), owner.GetResourceVersion()
	if kept, ok := w.specs.get(key); ok && kept.resourceVersion == version {
		return kept
	}
	spec, err := w.kind.Spec(owner)
	kept := keptSpec[C]{resourceVersion: version, selector: spec.Selector, err: err}
	if err == nil {
		kept.minReady, kept.rules = time.Duration(spec.MinReadySeconds)*time.Second, spec.Rules.Complete()
		kept.limited = spec.MaxDeletions != nil
	}
	var refused *replicas.RefusedError
	if key.UID != "" && version != "" && (err == nil || errors.As(err, &refused)) {
		w.specs.keep(key, kept)
		if _, found := w.find(key); !found { // its deletion may have been told before
			w.specs.forget(key)
		}
	}
	return kept
}

func (s *keptSpecs[C]) get(owner expectations.Key) (keptSpec[C], bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, ok := s.of[owner]
	return kept, ok
}

func (s *keptSpecs[C]) keep(owner expectations.Key, kept keptSpec[C]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[expectations.Key]keptSpec[C])
	}
	s.of[owner] = kept
}

func (s *keptSpecs[C]) forget(owner expectations.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, owner)
}
