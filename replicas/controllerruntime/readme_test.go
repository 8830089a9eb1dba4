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

// The program in the README is that of the function Example, with the function pools before it.
func TestREADME(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, kind, _ := strings.Cut(string(source), "\nfunc pools() ")
	kind, _, _ = strings.Cut(kind, "\n}\n")
	_, body, _ := strings.Cut(string(source), "\nfunc Example() ")
	body, _, _ = strings.Cut(body, "\n}\n")
	program := "func pools() " + kind + "\n}\n\nfunc main() " + body + "\n}\n"
	assert.LessOrEqual(t, strings.Count(program, "\n"), 45, "lines")
	assert.Contains(t, string(readme), "```go\n"+program+"```\n")
}
