// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/test/kubernetes/upstream"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, want string
		parts      []string
	}{
		{"no part", "say which parts to run: unit, integration", nil},
		{"an unknown part", `there is no part "e2e", only unit and integration`, []string{"unit", "e2e"}},
		{"no etcd", "there is no /does/not/exist/etcd: run `make cluster-binaries`", []string{"integration"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := run(t.Context(), upstream.Runner{Binaries: "/does/not/exist"}, tc.parts, &out)
			require.EqualError(t, err, tc.want)
			assert.Empty(t, out.String())
		})
	}
}
