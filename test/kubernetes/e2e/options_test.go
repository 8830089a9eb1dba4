// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	opts, err := parse([]string{"-sides=none,ours", "-focus=Replica.*"})
	require.NoError(t, err)
	require.Len(t, opts.sides, 2)
	assert.Equal(t, "none", opts.sides[0].name)
	assert.Equal(t, "ours", opts.sides[1].name)
	assert.Equal(t, "Replica.*", opts.focus.String())
	assert.Equal(t, dir, opts.binaries)
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"-sides=ours,mine": `-sides=ours,mine: "mine" is not one of ours,kubernetes,none`,
		"-sides=":          `-sides=: "" is not one of ours,kubernetes,none`,
		"-focus=(":         "-focus: error parsing regexp: missing closing ): `(`",
		"ours":             `arguments that are not flags: ["ours"]`,
	} {
		t.Run(args, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
			_, err := parse(strings.Fields(args))
			assert.EqualError(t, err, want)
		})
	}
}
