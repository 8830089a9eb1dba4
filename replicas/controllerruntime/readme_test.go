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

// The command go doc prints the comment of the package and then its functions. Both fit on a screen of 24 lines.
func TestTheFirstScreenShowsAFunction(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, comment, _ := strings.Cut(string(doc), "\n\n")
	assert.LessOrEqual(t, strings.Count(comment, "\n//")+1, 17, "lines; go doc breaks lines at 80 characters, so it prints more")
}
