// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"hash/maphash"
	"math/bits"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sightings find the objects that a list has more than once, by UID: a hash table
// with open addressing, which takes a third of the time of a map. Most plans have
// little else to do.
type sightings[T metav1.Object] struct {
	objs []T
	seed maphash.Seed
	// slots are 0, or the upper half of the hash of an object's UID above one more
	// than its index. A third of them at least is 0.
	slots []uint64
}

func newSightings[T metav1.Object](objs []T) *sightings[T] {
	n := len(objs) + len(objs)/2
	return &sightings[T]{objs: objs, seed: maphash.MakeSeed(), slots: make([]uint64, 1<<bits.Len(uint(n)))}
}

// first reports whether no call before was for an object with the same UID, i
// being an index. An empty UID, as objects of fake clients have, is another one
// each time.
func (s *sightings[T]) first(i int) bool {
	uid := s.objs[i].GetUID()
	if uid == "" {
		return true
	}
	hash, mask := maphash.String(s.seed, string(uid)), uint64(len(s.slots)-1)
	at := hash & mask
	for ; s.slots[at] != 0; at = (at + 1) & mask {
		if found := s.slots[at]; found>>32 == hash>>32 && s.objs[uint32(found)-1].GetUID() == uid {
			return false
		}
	}
	s.slots[at] = hash>>32<<32 | uint64(i+1)
	return true
}
