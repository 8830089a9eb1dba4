// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTellsTheLeastVersionByWhatHasChanged(t *testing.T) {
	t.Parallel()
	one := []string{"x"}
	for _, tt := range []struct {
		changes
		want string
	}{
		{changes{}, "v0.1.0"},
		{changes{since: "v0.1.2"}, "v0.1.3"},
		{changes{since: "v0.1.2", added: one}, "v0.1.3"},
		{changes{since: "v0.1.2", incompatible: one}, "v0.2.0"},
		{changes{since: "v1.4.2"}, "v1.4.3"},
		{changes{since: "v1.4.2", added: one}, "v1.5.0"},
		{changes{since: "v1.4.2", incompatible: one, added: one}, "v2.0.0"},
	} {
		assert.Equal(t, tt.want, tt.least(), tt.changes)
	}
}

func TestComparesTheAPIWithTheLastRelease(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	diff := func() string {
		w.log.Reset()
		require.NoError(t, w.request("").apidiff(t.Context()))
		return w.log.String()
	}
	assert.Equal(t, "No release yet that the API could be compared with.\n", diff())
	require.NoError(t, w.request("v0.1.0").release(t.Context()))
	require.NoError(t, w.request("v0.2.0-rc.1").release(t.Context()))
	assert.Equal(t, "0 incompatible changes and 0 additions since v0.1.0: the next release is v0.1.1 at least.\n", diff())

	w.write("four.go", "package kit\n\n// Four is four.\nconst Four = 4\n")
	w.write("internal/five.go", "package internal\n\n// Five is nobody's business.\nconst Five = 5\n")
	assert.Equal(t, "Added:\n- Four: added\n0 incompatible changes and 1 additions since v0.1.0: the next release is v0.1.1 at least.\n", diff())

	w.edit("adapter/adapter.go", "kit.Two + 1", "kit.Two + 1.5")
	w.edit("test/test.go", "= kit.Two * adapter.Three", "= 6 + 0*(kit.Two+adapter.Three)")
	assert.Equal(t, "Incompatible:\n- adapter: Three: changed from untyped int to untyped float\nAdded:\n- Four: added\n"+
		"1 incompatible changes and 1 additions since v0.1.0: the next release is v0.2.0 at least.\n", diff())
}

func TestRefusesAVersionThatHidesWhatBreaks(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	require.NoError(t, w.request("v0.1.0").release(t.Context()))
	w.edit("adapter/adapter.go", "Three is three.\nconst Three", "Drei is three.\nconst Drei")
	w.edit("adapter/example_test.go", "adapter.Three", "adapter.Drei")
	w.edit("examples/manager/main.go", "adapter.Three", "adapter.Drei")
	w.edit("test/test.go", "adapter.Three", "adapter.Drei")
	w.commit()
	before := w.state()
	err := w.request("v0.1.1").release(t.Context())
	require.ErrorContains(t, err, "version v0.1.1 is too low:\nIncompatible:\n- adapter: Three: removed\n")
	require.ErrorContains(t, err, "since v0.1.0: the next release is v0.2.0 at least")
	assert.Equal(t, before, w.state())
	require.NoError(t, w.request("v0.2.0-rc.1").release(t.Context()))
	require.NoError(t, w.request("v0.2.0").release(t.Context()))
}
