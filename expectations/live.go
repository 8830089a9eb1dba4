// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// SyncLive corrects the expired record of an owner, and returns the changes that are still
// outstanding. To find these changes, SyncLive compares the owner's cached objects with a live list
// from the API server. A change is outstanding if the API server has made the change and the cache
// does not show it yet. A creation by name remains outstanding if only the live list contains the
// object. A deletion by UID remains outstanding if only the cached list contains the object. If
// only the live list contains an object, and the record does not contain the object's name, the
// object counts as one creation. If only the cached list contains an object, and the record does
// not contain the object's UID, the object counts as one deletion. An object counts even if its
// creation or deletion was not expected, because the object proves that the cache is stale. All
// other changes are removed from the record, because their API calls failed or their events were
// lost.
//
// The timeout of the record does not start again. While the cache is stale, the owner therefore
// stays Expired, and the next pass lists from the API server again. Do not call Forget instead of
// SyncLive. After a call of Forget, the next pass would plan from the stale cache.
//
// The parameter counts is a function that reports whether an object is a replica of the owner. In
// both lists, SyncLive ignores the objects for which the function returns false. Therefore the two
// lists may be read in different ways. For example, you may read the cached objects with an index
// by owner, and the live objects with a label selector. If an object can appear in only one of the
// lists, the function must return false for it. Otherwise, the object would keep the owner Expired
// forever. If the function is nil, all objects of both lists count as replicas. In this case, the
// cached objects and the live objects must be selected in the same way.
//
// Read the cached objects before the live objects. The live list must be complete. An object
// without a UID, for example from a fake client, is identified by "namespace/name". Nil objects are
// skipped. SyncLive does not keep the lists. If the owner has no record, SyncLive does not make
// one. A nil Store has no records. SyncLive takes O(n) time in the length of the lists.
func SyncLive[K comparable, T metav1.Object](s *Store[K], key K, cached, live []T, counts func(T) bool) Pending {
	if s == nil {
		return Pending{}
	}
	pending, _ := s.Get(key)
	created, deleted := sets.New[string](), sets.New[types.UID]()
	for _, obj := range beyond(live, cached, counts) {
		created.Insert(obj.GetName())
	}
	for _, obj := range beyond(cached, live, counts) {
		deleted.Insert(object.ID(obj))
	}
	var settled Changes
	settled.Creations, settled.Creating = unproven(pending.Creations, pending.Creating, created)
	settled.Deletions, settled.Deleting = unproven(pending.Deletions, pending.Deleting, deleted)
	s.Lower(key, settled)
	pending, _ = s.Get(key)
	return pending
}

// beyond returns the objects that are in objs but not in others. In both lists, it ignores each
// object obj for which counts(obj) is false.
func beyond[T metav1.Object](objs, others []T, counts func(T) bool) (more []T) {
	isOne := func(obj T) bool { return !object.IsNil(obj) && (counts == nil || counts(obj)) }
	known := sets.New[types.UID]()
	for _, obj := range others {
		if isOne(obj) {
			known.Insert(object.ID(obj))
		}
	}
	for _, obj := range objs {
		if isOne(obj) && !known.Has(object.ID(obj)) {
			more = append(more, obj)
		}
	}
	return more
}

// unproven compares the given tokens with the proven tokens. The second result contains the given
// tokens that are not proven. For each proven token that is not a given token, unproven subtracts
// one from the given number. The first result is the difference, which may be negative.
func unproven[T ~string](number int, tokens []T, proven sets.Set[T]) (int, []T) {
	others := proven.Clone().Delete(tokens...).Len()
	return number - others, sets.New(tokens...).Difference(proven).UnsortedList()
}
