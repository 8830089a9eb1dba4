// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restores collects the proofs that an API server was restored from a backup, and keeps a client from changing
// such a server.
package restores

import (
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/resourceversion"
)

// Err is wrapped in each proof.
var Err = errors.New("the API server was restored from a backup")

// endingsKept is the minimum number of recent DELETED events that are remembered.
const endingsKept = 2048

// A Watch records whether one API server was restored. The zero value is ready to use. All methods are safe for
// concurrent use.
type Watch struct {
	On func(error) // called with the first proof; nil if there is nothing to call

	mu  sync.Mutex
	err error // the proof that the server was restored, or nil
	// owners and children are the newest resourceVersions of all live lists.
	owners, children string
	// The sequence numbers of the DELETED events of children: the recent ones up to endingsKept, and as many older ones.
	recent, older map[types.UID]int
	count         int // number of DELETED events so far
}

// Proof returns nil if no restore was detected, and otherwise an error that wraps Err.
func (r *Watch) Proof() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Notice records a proof that the server was restored. Only the first proof is kept.
func (r *Watch) Notice(format string, args ...any) error {
	r.mu.Lock()
	first := r.err == nil
	if first {
		r.err = fmt.Errorf("%w: %w", Err, fmt.Errorf(format, args...))
	}
	err := r.err
	r.mu.Unlock()
	if first && r.On != nil {
		r.On(err)
	}
	return err
}

// CompareOwners calls list, which makes a live list of owners and returns its resourceVersion. When an earlier list or
// the cache has shown a newer one, it records a restore and returns an error.
func (r *Watch) CompareOwners(cached string, list func() (version string, err error)) error {
	return r.compare(&r.owners, "owners", cached, list)
}

// CompareChildren is CompareOwners for lists of children.
func (r *Watch) CompareChildren(cached string, list func() (version string, err error)) error {
	return r.compare(&r.children, "children", cached, list)
}

func (r *Watch) compare(newest *string, what, cached string, list func() (version string, err error)) error {
	// The newest version is read before the list begins: another list, which begins later and ends earlier, may show
	// a newer version, and proves nothing.
	r.mu.Lock()
	earlier := *newest
	r.mu.Unlock()
	version, err := list()
	switch {
	case err != nil:
		return err
	case resourceversion.Older(version, earlier):
		return r.Notice("a live list of %s has version %s, and an earlier one had %s", what, version, earlier)
	case resourceversion.Older(version, cached):
		return r.Notice("a live list of %s has version %s, and the cache had shown %s", what, version, cached)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if isNumber := resourceversion.Reached(version, version); isNumber && !resourceversion.Older(version, *newest) {
		*newest = version
	}
	return nil
}

// ChildDeleted records a DELETED event of a child.
func (r *Watch) ChildDeleted(id types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recent == nil || len(r.recent) == endingsKept {
		r.recent, r.older = map[types.UID]int{}, r.recent
	}
	r.count++
	r.recent[id] = r.count
}

// ChildrenDeleted returns the number of DELETED events so far.
func (r *Watch) ChildrenDeleted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// IsDeleted reports whether the first n DELETED events include an event for this child.
func (r *Watch) IsDeleted(id types.UID, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := max(r.recent[id], r.older[id])
	return at > 0 && at <= n
}

// NoticeOlder records a restore, and returns it as an error, if an object that a call returned is older than the
// version that was shown before the call.
func (r *Watch) NoticeOlder(is metav1.Object, shown string) error {
	if is.GetUID() == "" || !resourceversion.Older(is.GetResourceVersion(), shown) {
		return nil
	}
	return r.Notice("%q was read in version %s, but version %s had been shown", is.GetName(), is.GetResourceVersion(), shown)
}

// NoticeOlder records a restore, and returns it as an error, if one of the known children is older on the server.
func NoticeOlder[C metav1.Object](r *Watch, known []C, found ...C) error {
	isNil, live := object.NilOf[C](), make(map[types.UID]C, len(found))
	for _, c := range found {
		if !isNil(c) {
			live[c.GetUID()] = c
		}
	}
	for _, shown := range known {
		if is, ok := live[shown.GetUID()]; ok {
			if err := r.NoticeOlder(is, shown.GetResourceVersion()); err != nil {
				return err
			}
		}
	}
	return nil
}
