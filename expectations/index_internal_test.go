// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations

import (
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
	assert.Empty(t, s.named.keys)
	assert.Empty(t, s.creating.keys)
	assert.Empty(t, s.deleting.keys)
}
