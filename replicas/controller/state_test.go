// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/replicakit/replicakit/replicas/controller"
)

// The first three columns are what the ledger says of a view: the pass's own calls are not seen, children may be
// missing or gone, and the cache is old. The last two columns are the states in a term that has seen the children,
// and in a new one.
func TestTheStateOfAView(t *testing.T) {
	t.Parallel()
	const no, yes = false, true
	for _, row := range []struct {
		waits, unmet, stale bool
		known, isNew        string
	}{
		{no, no, no, "trusted", "stale"},
		{no, no, yes, "stale", "stale"},
		{no, yes, no, "incomplete", "incomplete"},
		{no, yes, yes, "incomplete", "incomplete"},
		{yes, no, no, "waiting", "waiting"},
		{yes, no, yes, "waiting", "waiting"},
		{yes, yes, no, "waiting", "waiting"},
		{yes, yes, yes, "waiting", "waiting"},
	} {
		assert.Equal(t, row.known, controller.StateOfView(row.waits, row.unmet, row.stale, false), "%+v", row)
		assert.Equal(t, row.isNew, controller.StateOfView(row.waits, row.unmet, row.stale, true), "%+v, in a new term", row)
	}
}
