// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package importing_test counts what importing this library costs.
package importing_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The README must state the right number of imported packages for these imports. The root module's tests check the
// number for package replicas.
func TestImportingCostsWhatTheREADMESays(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	for row, tt := range map[string]struct {
		dir, imports string
		without      []string // packages that an operator imports even without this library
	}{
		"| `replicas/controllerruntime` | %d packages on top of controller-runtime 0.21 |": {"../../../replicas/controllerruntime", ".", []string{"sigs.k8s.io/controller-runtime"}},
		"| `replicas/clientgo` | %d packages on top of client-go 0.36 and Prometheus' client |": {"../../../replicas/clientgo", ".", []string{
			"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/client-go/tools/record", "github.com/prometheus/client_golang/prometheus",
		}},
		"| Kubernetes' own `pkg/controller` | %d packages |": {"../..", "k8s.io/kubernetes/pkg/controller", nil},
	} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			packages := dependencies(t, tt.dir, tt.imports)
			if tt.without != nil {
				for other := range dependencies(t, tt.dir, tt.without...) {
					delete(packages, other)
				}
			}
			assert.Contains(t, string(readme), "\n"+fmt.Sprintf(row, len(packages))+"\n")
		})
	}
}

// dependencies returns the given packages and the packages that they need on linux/amd64, without the standard
// library. The versions are those of the module's own go.mod.
func dependencies(t *testing.T, dir string, packages ...string) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)...)
	cmd.Dir, cmd.Stderr, cmd.Env = dir, os.Stderr, append(os.Environ(), "GOWORK=off", "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	require.NoError(t, err)
	found := map[string]bool{}
	for name := range strings.FieldsSeq(string(out)) {
		found[name] = true
	}
	return found
}
