// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consistency replaces k8s.io/kubernetes/pkg/controller/util/consistency. The unit tests of that
// package run in it.
package consistency

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

// LastSyncRVGetter has the method of a cache that is used.
type LastSyncRVGetter interface{ LastStoreSyncResourceVersion() string }

// A ConsistencyStore uses ours with caches of client-go.
type ConsistencyStore struct {
	*expectations.ConsistencyStore

	// wiped makes the caches appear to have seen almost nothing.
	wiped bool
}

// NewConsistencyStore returns an empty one.
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

// EnsureReady returns our answer as an error.
func (s *ConsistencyStore) EnsureReady(owner types.NamespacedName) error {
	if stale, ready := s.Ready(expectations.Key{NamespacedName: owner}); !ready {
		return errors.New(stale.String())
	}
	return nil
}

// WroteAt calls ours.
func (s *ConsistencyStore) WroteAt(owner types.NamespacedName, uid types.UID, resource schema.GroupResource, version string) {
	s.ConsistencyStore.WroteAt(expectations.Key{NamespacedName: owner, UID: uid}, resource, version)
}

// getWrittenRecord returns nil if ours has forgotten the owner's writes. To find out, the caches lose what
// they had seen. If a write is still remembered, it is then missing or given up.
func (s *ConsistencyStore) getWrittenRecord(owner types.NamespacedName) *ownerRecord {
	s.wiped = true
	defer func() { s.wiped = false }()
	gaveUp := s.GivenUp()
	if s.EnsureReady(owner) == nil && s.GivenUp() == gaveUp {
		return nil
	}
	return &ownerRecord{}
}

// An ownerRecord is our record of one owner.
type ownerRecord struct {
	ownerUID types.UID
	wrote    []func(*ConsistencyStore)
}

func newOwnerRecord(uid types.UID) *ownerRecord { return &ownerRecord{ownerUID: uid} }

// WroteAt remembers the write for EnsureReady, because our records are in a store.
func (r *ownerRecord) WroteAt(resource schema.GroupResource, version string) {
	r.wrote = append(r.wrote, func(s *ConsistencyStore) {
		s.WroteAt(types.NamespacedName{Name: "owner"}, r.ownerUID, resource, version)
	})
}

// EnsureReady adds all writes to the store and asks it.
func (r *ownerRecord) EnsureReady(store *ConsistencyStore) error {
	for _, wrote := range r.wrote {
		wrote(store)
	}
	return store.EnsureReady(types.NamespacedName{Name: "owner"})
}
