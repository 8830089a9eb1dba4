// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dashboard has only the fields of a Grafana dashboard that our file sets.
type dashboard struct {
	Title, UID, Refresh string
	Tags                []string
	SchemaVersion       int
	Editable            bool
	Time                struct{ From, To string }
	Templating          struct {
		List []struct{ Name, Label, Type, Query string }
	}
	Links []struct {
		Type, Title, URL string
		TargetBlank      bool
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct {
			Unit string
			Min  float64
		}
		Overrides []struct{}
	}
	Targets []struct{ RefID, Expr, LegendFormat string }
}

// If managers are at work and some owners are gated, each query of the dashboard returns a series. If the legend
// for a query shows the values of labels, each series that the query returns has all these labels.
func TestTheDashboardAsksForWhatIsServed(t *testing.T) {
	t.Parallel()
	f := fleetOf(t)
	text, err := os.ReadFile(program + "/manifests/monitoring/" + name + ".json")
	require.NoError(t, err)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var d dashboard
	require.NoError(t, decoder.Decode(&d))
	require.Greater(t, len(d.Panels), 10)

	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	gated := func(s labels.Labels, value float64, _ time.Duration) (float64, bool) {
		if is(s, "replicakit_gated_owners") {
			value = 1
		}
		return value, true
	}
	history := newHistory(f, gated)
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID] || titles[p.Title], "%d %s: twice", p.ID, p.Title)
		ids[p.ID], titles[p.Title] = true, true
		assert.Equal(t, "${"+d.Templating.List[0].Name+"}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			f.serves(t, p.Title, target.Expr)
			query, err := engine.NewInstantQuery(t.Context(), history, nil, target.Expr, historyEnds)
			require.NoError(t, err, target.Expr)
			found, err := query.Exec(t.Context()).Vector()
			require.NoError(t, err, target.Expr)
			assert.NotEmpty(t, found, "%s: nothing is shown of %s", p.Title, target.Expr)
			for _, series := range found {
				for _, used := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
					assert.NotEmpty(t, series.Metric.Get(used[1]), "%s: the legend names the label %s", p.Title, used[1])
				}
			}
			query.Close()
		}
	}
}
