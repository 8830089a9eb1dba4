// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func runbook(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}

func TestEachAlertHasItsSection(t *testing.T) {
	t.Parallel()
	var sections, names []string
	for _, found := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(runbook(t), -1) {
		sections = append(sections, found[1])
	}
	for _, rule := range alerts(t) {
		names = append(names, rule.Alert)
		_, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "docs/operating.md#")
		assert.Equal(t, strings.ToLower(rule.Alert), anchor)
		assert.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
	}
	assert.Equal(t, names, sections)
}

func TestFlagsMetricsAndAlertsOfThePagesExist(t *testing.T) {
	t.Parallel()
	f := fleetOf(t)
	help, err := exec.CommandContext(t.Context(), f.controller, "--help").Output()
	require.NoError(t, err)
	pages := runbook(t)
	for _, name := range []string{"replacing-kube-controller-manager.md", "scale.md", "metrics.md"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(page), name))
		require.NoError(t, err)
		pages += string(text)
	}
	flags := regexp.MustCompile("`(--[a-z-]+)").FindAllStringSubmatch(pages, -1)
	require.Greater(t, len(flags), 10)
	for _, flag := range flags {
		assert.Regexp(t, regexp.QuoteMeta(flag[1])+`(\s|=)`, string(help))
	}
	metrics := regexp.MustCompile("`((?:replicakit|workqueue|rest_client|leader_election|process)_\\w+)").FindAllStringSubmatch(pages, -1)
	require.Greater(t, len(metrics), 12)
	for _, metric := range metrics {
		assert.Contains(t, f.families, strings.TrimSuffix(metric[1], "_count"))
	}
	named := regexp.MustCompile(`\bReplicakit[A-Z]\w+`).FindAllString(pages, -1)
	require.Greater(t, len(named), 20)
	for _, name := range named {
		assert.True(t, slices.ContainsFunc(alerts(t), func(r rulefmt.Rule) bool { return r.Alert == name }), "no alert %s", name)
	}
}
