// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The operator in the README is the body of this module's function Example.
func TestREADME(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(source), "func Example() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	assert.LessOrEqual(t, strings.Count(body, "\n")+3, 40, "lines")
	assert.Contains(t, string(readme), "```go\n"+strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:]+"\n```\n")
}
