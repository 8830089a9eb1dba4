// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// SyncLive settles an expired record by comparing the cached objects with a live list from the API
// server, and returns what is still outstanding. Outstanding are the creations and deletions that
// the server has and the cache does not show yet. A creation by name stays if live has the object
// and cached does not. A deletion by UID stays if cached has the object and live does not. Any
// other object that only live has counts as one creation, and any other object that only cached has
// counts as one deletion. Such an object counts even if its creation or deletion was not expected,
// because it shows that the cache is old. Everything else is settled, because the call failed, or
// because the event was lost and will never arrive.
//
// The time of the record does not change. So while the cache is behind, the owner stays Expired,
// and the next pass lists from the API server again. If you called Forget instead, the next pass
// would plan from the old cache.
//
// The function counts reports whether an object belongs to the owner and counts as a replica.
// SyncLive calls this function for both lists, so the lists may be read in different ways. For
// example, you may read cached with an index by owner, and live with a label selector. The function
// must return false for an object that only one of the lists can ever hold, because such an object
// would keep the owner Expired for ever. If counts is nil, every object in both lists counts, so
// both lists must be read by the same rule.
//
// Read cached before live. The list live must be complete. If an object has no UID, as with fake
// clients, "namespace/name" identifies the object. Nil objects are skipped, and the lists are not
// kept. If the owner has no record, SyncLive records nothing. SyncLive takes O(n) time in the
// length of the lists.
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

// beyond returns the objects of objs that count, without those that others also has and that count
// there.
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

// unproven returns number and the tokens that are not proven. The returned number is one less for
// each proven object that is not among the tokens. The result may be negative.
func unproven[T ~string](number int, tokens []T, proven sets.Set[T]) (int, []T) {
	others := proven.Clone().Delete(tokens...).Len()
	return number - others, sets.New(tokens...).Difference(proven).UnsortedList()
}
