package replicas

import (
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// keptSelectors are the selectors of owners as they were last parsed: an orphan is
// held against every owner of its namespace, and parsing takes fifty times as
// long as matching.
type keptSelectors struct {
	mu sync.Mutex
	of map[types.UID]keptSelector
}

type keptSelector struct {
	resourceVersion string
	selector        labels.Selector
	err             error
}

// get returns the selector of this version of the owner. It asks parse for it
// only once, if the owner has a version, and if an error can not pass by itself.
func (s *keptSelectors) get(owner metav1.Object, parse func(metav1.Object) (Spec, error)) (labels.Selector, error) {
	uid, version := owner.GetUID(), owner.GetResourceVersion()
	s.mu.Lock()
	kept, ok := s.of[uid]
	s.mu.Unlock()
	if ok && kept.resourceVersion == version {
		return kept.selector, kept.err
	}
	spec, err := parse(owner)
	var refused *RefusedError
	if uid != "" && version != "" && (err == nil || errors.As(err, &refused)) {
		s.keep(uid, keptSelector{version, spec.Selector, err})
	}
	return spec.Selector, err
}

func (s *keptSelectors) keep(uid types.UID, kept keptSelector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[types.UID]keptSelector)
	}
	s.of[uid] = kept
}

func (s *keptSelectors) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, uid)
}
