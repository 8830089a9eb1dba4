// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// Expecting returns the number of owners with creations or deletions that the cache does not show yet.
func (c *Controller) Expecting() int {
	n := 0
	for _, known := range inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]]](c.controller).Ledgers() {
		if creations, deletions := known.Awaited(); len(creations)+len(deletions) > 0 {
			n++
		}
	}
	return n
}
