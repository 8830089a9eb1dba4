// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/output.txt anew")

func TestOutput(t *testing.T) {
	t.Parallel()
	const golden = "testdata/output.txt"

	text, err := tell()
	require.NoError(t, err)
	again, err := tell()
	require.NoError(t, err)
	assert.Equal(t, text, again, "every run tells the same")

	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), text, "go test ./examples/quickstart -update writes it anew")
}

func TestCreations(t *testing.T) {
	t.Parallel()
	refused := assert.AnError
	for name, tc := range map[string]struct {
		answers []error
		skipped int
		want    string
	}{
		"one":             {make([]error, 1), 0, "1 pod"},
		"whole batches":   {make([]error, 7), 0, "7 pods, in batches of 1, 2, 4"},
		"the last is cut": {make([]error, 10), 0, "10 pods, in batches of 1, 2, 4, 3"},
		"the first fails": {[]error{refused}, 5, "0 of 6 pods: 1 call refused, 5 spared"},
		"a later one fails": {
			[]error{nil, nil, refused}, 4, "2 of 7 pods, in batches of 1, 2: 1 call refused, 4 spared",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, creations(tc.answers, tc.skipped))
		})
	}
}
