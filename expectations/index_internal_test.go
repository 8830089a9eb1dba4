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

// Of what is forgotten nothing stays, however often it comes back.
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

// Incarnations of one owner have one hash, so their records are one chain.
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
