// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// SyncLive settles an expired record with a live list, and returns what stays outstanding. That is
// what the server has and the cache does not show yet. A creation by name stays if the object is in
// live and not in cached. A deletion by UID stays if the object is in cached and not in live. Each
// other object that is in only one of the lists counts as one creation or deletion, whether it was
// expected or not. While there is such an object, the cache is old. Everything else is settled,
// because the call failed, or its event was lost and will never come.
//
// The record keeps its time. So while the cache is behind, the owner stays Expired, and the next
// pass lists live again. If the record were forgotten instead, the next pass would plan from the
// old cache.
//
// The function counts says which objects are the owner's and count as replicas. SyncLive calls it
// for both lists, so they may be read in different ways. For example, you may read the cached one
// by an index of owners, and the live one by labels. An object that only one of the lists can hold
// would keep the owner Expired for ever. If counts is nil, every object of both lists counts, so
// both must be read by the same rule.
//
// Read cached before live; live must be complete. An object without a UID, as fake clients make
// them, is known by "namespace/name". Nil objects are skipped, and the lists are not kept. If the
// owner has no record, nothing is recorded. It costs O(n) in the length of the lists.
func SyncLive[K comparable, T metav1.Object](s *Store[K], key K, cached, live []T, counts func(T) bool) Pending {
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

// beyond returns the objects that count and are not among the others that count.
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

// unproven returns the tokens that are not proven. The number is less one for each proven object
// that is not a token, so it may be negative.
func unproven[T ~string](number int, tokens []T, proven sets.Set[T]) (int, []T) {
	others := proven.Clone().Delete(tokens...).Len()
	return number - others, sets.New(tokens...).Difference(proven).UnsortedList()
}
