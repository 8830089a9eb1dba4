// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// If the manager and kube-controller-manager have the same flag, both have the same default. The test lists the
// exceptions, which docs/operating.md or docs/replacing-kube-controller-manager.md explains.
func TestFlagsHaveTheDefaultsOfKubeControllerManager(t *testing.T) {
	t.Parallel()
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	ours, theirs := defaultsOf(t, fleetOf(t).controller), defaultsOf(t, filepath.Join(binaries, "kube-controller-manager"))
	other := map[string]string{}
	shared := 0
	for flag, value := range ours {
		if their, both := theirs[flag]; both {
			shared++
			if value != their {
				other[flag] = their + " there, here " + value
			}
		}
	}
	assert.Equal(t, map[string]string{
		"kube-api-qps":               "20 there, here ",
		"leader-elect-resource-name": `"kube-controller-manager" there, here "replicakit-controller"`,
		"profiling":                  "true there, here ",
	}, other)
	assert.Greater(t, shared, 15)
	for _, flag := range []string{"concurrent-replicaset-syncs", "concurrent-rc-syncs", "kube-api-qps", "kube-api-burst", "leader-elect", "controllers", "feature-gates"} {
		assert.Contains(t, theirs, flag)
		assert.Contains(t, ours, flag)
	}
}

// defaultsOf returns the default of each flag in the help of a program. If the help does not state a default for
// a flag, the result for this flag is "". If the stated default is an empty list, the result is also "".
func defaultsOf(t *testing.T, program string) map[string]string {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), program, "--help").Output()
	require.NoError(t, err)
	defaults := map[string]string{}
	stated := regexp.MustCompile(`(?m)\(default (.*)\)$`)
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--`).Split(string(help), -1)[1:] {
		name := regexp.MustCompile(`^[a-z-]+`).FindString(flag)
		defaults[name] = ""
		if value := stated.FindStringSubmatch(flag); value != nil {
			defaults[name] = strings.Trim(value[1], "[]")
		}
	}
	return defaults
}
