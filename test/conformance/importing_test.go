// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	upstreamController = "k8s.io/kubernetes/pkg/controller"
	ourModule          = "github.com/replicakit/replicakit"
)

// The README's table of what importing costs. The packages and modules of the last
// two rows are counted by the root module's own tests.
func TestImportingCostsWhatTheREADMESays(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for row, program := range map[string]struct {
		module  string
		imports []string
	}{
		"`" + upstreamController + "`":                            {".", []string{upstreamController}},
		"`replicakit/replicas`":                                   {"../..", []string{ourModule + "/replicas"}},
		"what it needs of `k8s.io/api` and `apimachinery`, alone": {"../..", foreignImports(t)},
	} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			figure := regexp.MustCompile(`\n\| ` + regexp.QuoteMeta(row) + ` \| \d+ \| \d+ \| ([\d.]+) MB \|`).FindSubmatch(readme)
			require.NotNil(t, figure)
			megabytes, err := strconv.ParseFloat(string(figure[1]), 64)
			require.NoError(t, err)
			assert.InEpsilon(t, megabytes, float64(sizeOf(t, program.module, program.imports))/1e6, 0.03)
		})
	}
	packages, modules := 0, map[string]bool{}
	for _, of := range golang(t, ".", "list", "-deps", "-f", "{{if not .Standard}}{{.Module.Path}}{{end}}", upstreamController) {
		packages++
		modules[of] = true
	}
	assert.Contains(t, string(readme), fmt.Sprintf("\n| `%s` | %d | %d |", upstreamController, packages, len(modules)))
}

// foreignImports returns what our package replicas, and those of ours that it
// imports, import of other modules.
func foreignImports(t *testing.T) (paths []string) {
	t.Helper()
	for _, path := range golang(t, "../..", "list", "-deps", "-f", `{{with .Module}}{{if .Main}}{{join $.Imports "\n"}}{{end}}{{end}}`, "./replicas") {
		first, _, _ := strings.Cut(path, "/")
		if strings.Contains(first, ".") && !strings.HasPrefix(path, ourModule) {
			paths = append(paths, path)
		}
	}
	return paths
}

// sizeOf returns the size of a program that imports the packages and does nothing,
// built by the module in that directory.
func sizeOf(t *testing.T, module string, imports []string) int64 {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	text := "package main\n\nimport (\n\t_ \"" + strings.Join(imports, "\"\n\t_ \"") + "\"\n)\n\nfunc main() {}\n"
	require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
	golang(t, module, "build", "-o", binary, source)
	info, err := os.Stat(binary)
	require.NoError(t, err)
	return info.Size()
}

// golang runs the go command for the platform of the README, and returns the lines
// that it prints.
func golang(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}
