// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const metricsPage = "../../docs/metrics.md"

var update = flag.Bool("update", false, "write the tables of docs/metrics.md anew")

// rowOfAMetric matches a row of docs/metrics.md. The first group is the name of a metric, and the second group is
// the advice, which may be empty. The advice is the only column of the row that does not come from the metrics of a
// manager.
var rowOfAMetric = regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*\\| ([^|\n]*)\\|$")

// ofLibraries matches the metrics that kube-controller-manager serves too. The page names them by their prefixes.
var ofLibraries = regexp.MustCompile("^(go|process|rest_client|workqueue|leader_election)_")

// row returns the row of a metric for docs/metrics.md, with the given advice.
func (f families) row(name, advice string) string {
	family := f[name]
	labels := map[string]bool{}
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			labels["`"+l.GetName()+"`"] = true
		}
	}
	typeAndLabels := strings.ToLower(family.GetType().String())
	if len(labels) > 0 {
		typeAndLabels += ": " + strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s|", name, typeAndLabels, strings.ReplaceAll(family.GetHelp(), "|", "\\|"), advice)
}

// docs/metrics.md has one row for each metric of the managers. Those that kube-controller-manager has too are left out.
// In all columns except the advice, the rows show what the managers serve.
func TestThePageOfMetricsIsWhatIsServed(t *testing.T) {
	t.Parallel()
	served := fleetOf(t).families
	text, err := os.ReadFile(metricsPage)
	require.NoError(t, err)
	var rows []string
	page := rowOfAMetric.ReplaceAllStringFunc(string(text), func(row string) string {
		found := rowOfAMetric.FindStringSubmatch(row)
		rows = append(rows, found[1])
		if served[found[1]] == nil {
			return row
		}
		return served.row(found[1], found[2])
	})
	var names []string
	for name := range served {
		if !ofLibraries.MatchString(name) {
			names = append(names, name)
		}
		if !ofLibraries.MatchString(name) && !slices.Contains(rows, name) {
			t.Logf("a row for the page: %s", served.row(name, "? "))
		}
	}
	assert.ElementsMatch(t, names, rows)
	if *update {
		require.NoError(t, os.WriteFile(metricsPage, []byte(page), 0o600))
		return
	}
	assert.Equal(t, page, string(text), "go test ./operating -run TestThePageOfMetrics -update writes it anew")
}
