package replicas

import (
	"hash/maphash"
	"math/bits"

	"k8s.io/apimachinery/pkg/types"
)

// sightings find the UIDs that a list has more than once: a hash table with open
// addressing, which takes a third of the time of a map. Most plans have little else
// to do.
type sightings struct {
	uids  []types.UID
	seed  maphash.Seed
	slots []int32 // 0, or one more than the index of a UID; at most half are taken
}

func newSightings(uids []types.UID) *sightings {
	return &sightings{uids: uids, seed: maphash.MakeSeed(), slots: make([]int32, 2<<bits.Len(uint(len(uids))))}
}

// first reports whether no call before was for an equal UID, i being an index. An
// empty UID, as objects of fake clients have, is another one each time.
func (s *sightings) first(i int) bool {
	uid := s.uids[i]
	if uid == "" {
		return true
	}
	mask := uint64(len(s.slots) - 1)
	at := maphash.String(s.seed, string(uid)) & mask
	for ; s.slots[at] != 0; at = (at + 1) & mask {
		if s.uids[s.slots[at]-1] == uid {
			return false
		}
	}
	s.slots[at] = int32(i + 1)
	return true
}
