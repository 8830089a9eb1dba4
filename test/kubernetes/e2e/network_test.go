// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEachNodeHasAddressesOfItsOwn(t *testing.T) {
	t.Parallel()
	for i := range nodes {
		assert.True(t, podNetwork.Contains(nodePods(i).Addr()))
		assert.False(t, nodePods(i).Contains(machine))
		for j := range i {
			assert.False(t, nodePods(i).Overlaps(nodePods(j)))
		}
	}
}
