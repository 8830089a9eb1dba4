package expectations

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// SyncLive settles an expired record from a live list, as far as the cache has
// come, and returns what is still outstanding: what the live list has proven and
// the cache does not show yet. A creation by name stays if an object of that name
// is in live and not in cached; a deletion by UID stays if that object is in cached
// and not in live. Of creations and deletions that are only counted, as many stay
// as there are other objects of which the same is true. Everything else is settled:
// the call failed, or its event was lost and will never come.
//
// The record keeps its time. So while the cache is behind, the owner stays Expired,
// and the next pass lists live as well; with the record forgotten, it would plan
// from the old cache.
//
// Both lists are those of the owner's objects that count; cached was read before
// live, and live is complete. An object without UID, as fake clients make them, goes
// by "namespace/name". Nil objects are skipped, nothing is kept. It costs O(n) in
// the length of the lists.
func SyncLive[K comparable, T metav1.Object](s *Store[K], key K, cached, live []T) Pending {
	pending, _ := s.Get(key)
	created, deleted := sets.New[string](), sets.New[types.UID]()
	for _, obj := range beyond(live, cached) {
		created.Insert(obj.GetName())
	}
	for _, obj := range beyond(cached, live) {
		deleted.Insert(object.ID(obj))
	}
	var settled Changes
	settled.Creations, settled.Creating = unproven(pending.Creations, pending.Creating, created)
	settled.Deletions, settled.Deleting = unproven(pending.Deletions, pending.Deleting, deleted)
	s.Lower(key, settled)
	pending, _ = s.Get(key)
	return pending
}

// beyond returns the objects that are not among others.
func beyond[T metav1.Object](objs, others []T) (more []T) {
	known := sets.New[types.UID]()
	for _, obj := range others {
		if !object.IsNil(obj) {
			known.Insert(object.ID(obj))
		}
	}
	for _, obj := range objs {
		if !object.IsNil(obj) && !known.Has(object.ID(obj)) {
			more = append(more, obj)
		}
	}
	return more
}

// unproven returns those of the tokens that are not proven, and how many of the
// number are not.
func unproven[T ~string](number int, tokens []T, proven sets.Set[T]) (int, []T) {
	others := proven.Clone().Delete(tokens...).Len()
	return number - min(max(number, 0), others), sets.New(tokens...).Difference(proven).UnsortedList()
}
