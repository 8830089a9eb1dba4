// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consistency replaces k8s.io/kubernetes/pkg/controller/util/consistency. The unit tests of the
// replaced package run in this package.
package consistency

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

// LastSyncRVGetter is the part of a cache that this package uses.
type LastSyncRVGetter interface{ LastStoreSyncResourceVersion() string }

// A ConsistencyStore embeds the type ConsistencyStore of our package expectations, and connects the embedded
// store to caches of client-go.
type ConsistencyStore struct {
	*expectations.ConsistencyStore

	// If wiped is true, all caches appear to be at resourceVersion 1.
	wiped bool
}

// NewConsistencyStore returns an empty store.
func NewConsistencyStore(stores map[schema.GroupResource]LastSyncRVGetter) *ConsistencyStore {
	s := &ConsistencyStore{ConsistencyStore: &expectations.ConsistencyStore{}}
	s.ReadVersion = func(resource schema.GroupResource) string {
		store, ok := stores[resource]
		switch {
		case !ok:
			return ""
		case s.wiped:
			return "1"
		default:
			return store.LastStoreSyncResourceVersion()
		}
	}
	return s
}

// EnsureReady returns an error if our store says that the owner is not ready.
func (s *ConsistencyStore) EnsureReady(owner types.NamespacedName) error {
	if stale, ready := s.Ready(expectations.Key{NamespacedName: owner}); !ready {
		return errors.New(stale.String())
	}
	return nil
}

// WroteAt calls the same method of our store.
func (s *ConsistencyStore) WroteAt(owner types.NamespacedName, uid types.UID, resource schema.GroupResource, version string) {
	s.ConsistencyStore.WroteAt(expectations.Key{NamespacedName: owner, UID: uid}, resource, version)
}

// getWrittenRecord returns nil if our store no longer contains any writes of the owner. To find out, it makes
// all caches appear to be at resourceVersion 1 and calls EnsureReady. If the store still contains a write,
// either EnsureReady returns an error or the result of GivenUp increases.
func (s *ConsistencyStore) getWrittenRecord(owner types.NamespacedName) *ownerRecord {
	s.wiped = true
	defer func() { s.wiped = false }()
	gaveUp := s.GivenUp()
	if s.EnsureReady(owner) == nil && s.GivenUp() == gaveUp {
		return nil
	}
	return &ownerRecord{}
}

// An ownerRecord holds the recorded writes of one owner.
type ownerRecord struct {
	ownerUID types.UID
	wrote    []func(*ConsistencyStore)
}

func newOwnerRecord(uid types.UID) *ownerRecord { return &ownerRecord{ownerUID: uid} }

// WroteAt keeps the write until EnsureReady is called, because the store is not known before that call.
func (r *ownerRecord) WroteAt(resource schema.GroupResource, version string) {
	r.wrote = append(r.wrote, func(s *ConsistencyStore) {
		s.WroteAt(types.NamespacedName{Name: "owner"}, r.ownerUID, resource, version)
	})
}

// EnsureReady adds all kept writes to the store, and then calls the EnsureReady method of the store.
func (r *ownerRecord) EnsureReady(store *ConsistencyStore) error {
	for _, wrote := range r.wrote {
		wrote(store)
	}
	return store.EnsureReady(types.NamespacedName{Name: "owner"})
}
