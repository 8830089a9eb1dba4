// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package importing_test measures what importing this library costs.
package importing_test

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

const upstreamController = "k8s.io/kubernetes/pkg/controller"

// The README's table of what importing costs. Its programs are built by make programs.
// The packages and modules of the last two rows are counted by the root module's tests.
func TestImportingCostsWhatTheREADMESays(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for row, program := range map[string]string{
		"`" + upstreamController + "`":                            "imports-kubernetes",
		"`replicakit/replicas`":                                   "imports-replicas",
		"what it needs of `k8s.io/api` and `apimachinery`, alone": "imports-others",
	} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			figure := regexp.MustCompile(`\n\| ` + regexp.QuoteMeta(row) + ` \| \d+ \| \d+ \| ([\d.]+) MB \|`).FindSubmatch(readme)
			require.NotNil(t, figure)
			megabytes, err := strconv.ParseFloat(string(figure[1]), 64)
			require.NoError(t, err)
			info, err := os.Stat(filepath.Join("../../.cache/bin", program))
			require.NoError(t, err, "make programs builds it")
			assert.InEpsilon(t, megabytes, float64(info.Size())/1e6, 0.03)
		})
	}
	packages, modules := 0, map[string]bool{}
	for _, of := range dependencies(t) {
		packages++
		modules[of] = true
	}
	assert.Contains(t, string(readme), fmt.Sprintf("\n| `%s` | %d | %d |", upstreamController, packages, len(modules)))
}

// dependencies returns the module of each package that Kubernetes' own needs, on the
// platform of the README.
func dependencies(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Module.Path}}{{end}}", upstreamController)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}
