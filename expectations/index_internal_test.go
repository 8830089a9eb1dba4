// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

// If changes are seen or forgotten, the indexes keep no entries for them. The indexes are also empty if the same
// changes were recorded several times.
func TestIndexesAreEmptyInTheEnd(t *testing.T) {
	t.Parallel()
	var s Store[Key]
	web := Key{NamespacedName: types.NamespacedName{Namespace: "default", Name: "web"}, UID: "uid"}
	for range 3 {
		s.Set(web, Changes{Creating: []string{"a", "b"}, Deleting: []types.UID{"c", "d"}})
		s.CreationObserved(web, "a")
		s.DeletionObserved(web, "c")
		s.Forget(web)
	}
	assert.Empty(t, s.creating.keys)
	assert.Empty(t, s.deleting.keys)
}

// All incarnations of an owner have the same hash, so their records form one chain. Forget removes only the record
// of the given incarnation.
func TestIncarnationsAreForgottenOneByOne(t *testing.T) {
	t.Parallel()
	web := types.NamespacedName{Namespace: "default", Name: "web"}
	keys := []Key{{web, "first"}, {web, "second"}, {web, "third"}, {web, "fourth"}}
	for drop := range keys {
		t.Run("the one at "+strconv.Itoa(drop), func(t *testing.T) {
			t.Parallel()
			var s Store[Key]
			for i, key := range keys {
				s.Set(key, Changes{Creations: i + 1, Deleting: []types.UID{"pod"}})
			}
			s.Forget(keys[drop])
			for i, key := range keys {
				pending, ok := s.Get(key)
				assert.Equal(t, i != drop, ok, key)
				if ok {
					assert.Equal(t, i+1, pending.Creations, key)
				}
			}
			left := slices.Delete(slices.Clone(keys), drop, drop+1)
			assert.Equal(t, left, s.OwnersOfDeletion("pod"))
			s.Forget(keys[drop])
			s.ForgetName(types.NamespacedName{Namespace: "default", Name: "other"})
			assert.Equal(t, left, s.OwnersOfDeletion("pod"))
			s.ForgetName(web)
			assert.Empty(t, s.deleting.keys)
			for i := range s.shards {
				assert.Empty(t, s.shards[i].records)
			}
		})
	}
}
