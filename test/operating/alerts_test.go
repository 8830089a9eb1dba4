// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// alerts decodes the rules into the types of the Prometheus operator, and then parses them with the parser of
// Prometheus. Both steps fail if a field is unknown.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(program + "/manifests/monitoring/prometheusrule.yaml")
	require.NoError(t, err)
	var object monitoringv1.PrometheusRule
	require.NoError(t, yaml.UnmarshalStrict(text, &object))
	spec, err := yaml.Marshal(object.Spec)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(spec, false)
	require.Empty(t, errs)
	require.Len(t, groups.Groups, 1)
	return groups.Groups[0].Rules
}

// A history holds the series that Prometheus has scraped, with their values.
type history struct{ series []storage.Series }

const (
	scrapeEvery = 30 * time.Second
	lasts       = 2 * time.Hour
)

// The history begins long after the Unix epoch, so that no timestamp is negative.
var (
	historyBegins = time.Unix(1_000_000, 0)
	historyEnds   = historyBegins.Add(lasts)
)

// A change computes the value of a series at one time of a history. The argument value is the value of the series
// without this change. The third argument is the period from this time to the end of the history. If the second
// result is false, the series has no value at this time.
type change func(series labels.Labels, value float64, before time.Duration) (changed float64, there bool)

func newHistory(f *fleet, change change) history {
	var h history
	for _, series := range slices.Concat(f.leader, f.standby) {
		var points []chunks.Sample
		for at := historyBegins; !at.After(historyEnds); at = at.Add(scrapeEvery) {
			if value, there := change(series, f.values[series.String()], historyEnds.Sub(at)); there {
				points = append(points, point{at.UnixMilli(), value})
			}
		}
		h.series = append(h.series, storage.NewListSeries(series, points))
	}
	return h
}

// firing returns the alerts that fire at the end of the history, with their labels.
func (h history) firing(t *testing.T, rules []rulefmt.Rule) map[string]labels.Labels {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	defer func() { require.NoError(t, engine.Close()) }()
	firing := map[string]labels.Labels{}
	for _, rule := range rules {
		query, err := engine.NewRangeQuery(t.Context(), h, nil, rule.Expr, historyEnds.Add(-time.Duration(rule.For)), historyEnds, scrapeEvery)
		require.NoError(t, err, rule.Alert)
		matrix, err := query.Exec(t.Context()).Matrix()
		require.NoError(t, err, rule.Alert)
		for _, series := range matrix {
			if len(series.Floats) == 1+int(time.Duration(rule.For)/scrapeEvery) {
				firing[rule.Alert] = series.Metric
			}
		}
		query.Close()
	}
	return firing
}

func is(series labels.Labels, name string, values ...string) bool {
	if series.Get("__name__") != name {
		return false
	}
	for i := 0; i < len(values); i += 2 {
		if series.Get(values[i]) != values[i+1] {
			return false
		}
	}
	return true
}

// since returns a change that gives matching series the given value during the last d. All other values stay the
// same.
func since(d time.Duration, value float64, name string, labelsAndValues ...string) change {
	return func(s labels.Labels, was float64, before time.Duration) (float64, bool) {
		if is(s, name, labelsAndValues...) && before <= d {
			return value, true
		}
		return was, true
	}
}

// grows returns a change that lets matching counters grow during the last d. The second argument is the growth per
// minute.
func grows(d time.Duration, by float64, name string, labelsAndValues ...string) change {
	return func(s labels.Labels, was float64, before time.Duration) (float64, bool) {
		if is(s, name, labelsAndValues...) && before < d {
			return was + by*(d-before).Minutes(), true
		}
		return was, true
	}
}

// all combines several changes. Each change gets the result of the change before.
func all(changes ...change) change {
	return func(s labels.Labels, value float64, before time.Duration) (float64, bool) {
		for _, c := range changes {
			changed, there := c(s, value, before)
			if !there {
				return 0, false
			}
			value = changed
		}
		return value, true
	}
}

const leads, restored, ofSets = "leader_election_master_status", "replicakit_server_restored_timestamp_seconds", "replicaset"

func secondsOf(t time.Time) float64 { return float64(t.Unix()) }

func TestAlerts(t *testing.T) {
	t.Parallel()
	f, rules := fleetOf(t), alerts(t)
	told := map[string]bool{}
	stories := []struct {
		name   string
		change change
		fires  []string
	}{
		{"nothing happens", all(), nil},
		{"a rolling update of everything, a failover, states that come and go", all(
			grows(10*time.Minute, 0.6, "replicakit_children_created_total", "controller", ofSets),
			since(30*time.Minute, 1, "process_start_time_seconds", "pod", "a"),
			since(30*time.Second, 0, leads, "pod", "a"),
			since(time.Hour, 2, "replicakit_gated_owners", "reason", "CallsNotSeen", "pod", "a"),
			since(time.Hour, 1, "replicakit_gated_owners", "reason", "QuotaFull", "pod", "a"),
			since(3*time.Minute, 1, "replicakit_owners", "state", "adoption_pending", "pod", "a"),
			since(10*time.Minute, 2, "replicakit_replicas", "state", "current", "pod", "a"),
			since(12*time.Minute, 1, "replicakit_replica_failures", "pod", "a"),
			since(time.Hour, 90, "replicakit_watch_age_seconds", "pod", "a"),
			since(90*time.Minute, secondsOf(historyEnds.Add(-90*time.Minute)), restored, "pod", "a"),
		), nil},
		{"one of two is gone, as a node is drained", func(s labels.Labels, value float64, before time.Duration) (float64, bool) {
			return value, s.Get("pod") == "a" || before > 15*time.Minute
		}, nil},
		{"both are gone", func(_ labels.Labels, value float64, before time.Duration) (float64, bool) {
			return value, before > 15*time.Minute
		}, []string{"ReplicakitAbsent"}},
		{"nobody has the lease", since(2*time.Minute, 0, leads), []string{"ReplicakitNoLeader"}},
		{"the leader is gone and nobody takes over", func(s labels.Labels, value float64, before time.Duration) (float64, bool) {
			return value, s.Get("pod") == "b" || before > 10*time.Minute
		}, []string{"ReplicakitNoLeader"}},
		{"the lease is lost again and again", func(s labels.Labels, value float64, before time.Duration) (float64, bool) {
			if is(s, "process_start_time_seconds", "pod", "a") {
				value += float64(3 - min(3, int(before/(10*time.Minute))))
			}
			return value, true
		}, []string{"ReplicakitRestarts"}},
		{"a leader stood still once, and held its writes back", since(5*time.Minute, 7, "replicakit_refused_writes_total", "pod", "a"), nil},
		{"Prometheus lost its rights", since(11*time.Minute, 0, "up", "pod", "a"), []string{"ReplicakitNotScraped"}},
		{"the API server is away for long", since(6*time.Minute, 1, "replicakit_waiting", "pod", "a"), []string{"ReplicakitWaiting"}},
		{"pods are missing, and no reason is known", since(16*time.Minute, 2, "replicakit_replicas", "state", "current", "controller", ofSets, "pod", "a"), []string{"ReplicakitReplicasMissing"}},
		{"there are more owners to look at than passes", since(20*time.Minute, 30, "workqueue_depth", "name", ofSets, "pod", "a"), []string{"ReplicakitQueueGrows"}},
		{"many owners change at once, and are looked at", since(8*time.Minute, 300, "workqueue_depth", "name", ofSets, "pod", "a"), nil},
		{"a webhook hangs", since(11*time.Minute, 3, "replicakit_slow_passes", "controller", ofSets, "pod", "a"), []string{"ReplicakitSlowPasses"}},
		{"etcd is ill", grows(20*time.Minute, 60, "rest_client_requests_total", "code", "503", "pod", "a"), []string{"ReplicakitServerErrors"}},
		{"another controller makes pods of several owners", grows(2*time.Minute, 3, "replicakit_foreign_writes_total", "controller", ofSets, "what", "child", "pod", "a"), []string{"ReplicakitForeignPods"}},
		{"somebody makes a pod of one owner", since(2*time.Minute, 1, "replicakit_foreign_writes_total", "controller", ofSets, "what", "child", "pod", "a"), nil},
		{"kube-controller-manager has come back and writes a status", since(2*time.Minute, 1, "replicakit_foreign_writes_total", "controller", ofSets, "what", "status", "pod", "a"), []string{"ReplicakitOtherController"}},
		{"etcd was away for long and came back restored, and the manager that noticed was started again", func(s labels.Labels, value float64, before time.Duration) (float64, bool) {
			switch {
			case !is(s, restored, "pod", "a"):
				return value, true
			case before > 10*time.Minute:
				return secondsOf(historyEnds.Add(-30 * time.Minute)), before < 30*time.Minute
			}
			return 0, true
		}, []string{"ReplicakitServerRestored"}},
		{"a watch hangs", since(2*time.Minute, 200, "replicakit_watch_age_seconds", "kind", "Pod", "pod", "a"), []string{"ReplicakitWatchBehind"}},
		{"an adoption is not decided", since(5*time.Minute, 1, "replicakit_owners", "state", "adoption_pending", "controller", ofSets), []string{"ReplicakitOwnersFrozen"}},
		{"nobody knows what became of a creation", since(5*time.Minute, 1, "replicakit_owners", "state", "in_flight", "controller", ofSets), []string{"ReplicakitOwnersFrozen"}},
		{"owners cannot be read", since(5*time.Minute, 1, "replicakit_owners", "state", "unread", "controller", ofSets), []string{"ReplicakitOwnersFrozen"}},
		{"a spec is refused", since(5*time.Minute, 1, "replicakit_owners", "state", "refused", "controller", "replicationmanager"), []string{"ReplicakitOwnersFrozen"}},
		{"a quota is full", since(16*time.Minute, 1, "replicakit_replica_failures", "controller", ofSets, "pod", "a"), []string{"ReplicakitReplicaFailure"}},
		{"pods that fail at once are made anew and anew", since(0, 1, "replicakit_runaway_owners", "controller", ofSets, "pod", "a"), []string{"ReplicakitRunawayCreation"}},
	}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), fmt.Sprintf("the %d alerts in %d stories", len(rules), len(stories)))
	for _, story := range stories {
		for _, alert := range story.fires {
			told[alert] = true
		}
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, story.fires, fire(t, newHistory(f, story.change), rules))
		})
	}
	for _, rule := range rules {
		assert.True(t, told[rule.Alert], "no story tells of %s", rule.Alert)
	}
}

// fire returns the names of the alerts that fire. It also asserts that an alert has a value for each label that
// its summary names.
func fire(t *testing.T, h history, rules []rulefmt.Rule) (names []string) {
	t.Helper()
	firing := h.firing(t, rules)
	for _, rule := range rules {
		labels, fires := firing[rule.Alert]
		if !fires {
			continue
		}
		names = append(names, rule.Alert)
		for _, used := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1) {
			assert.NotEmpty(t, labels.Get(used[1]), "%s: the summary names the label %s", rule.Alert, used[1])
		}
	}
	return names
}

// The leader serves each series that an alert queries. An alert with a wrong name or label might never fire.
func TestAlertsAskForWhatIsServed(t *testing.T) {
	t.Parallel()
	f := fleetOf(t)
	for _, rule := range alerts(t) {
		f.serves(t, rule.Alert, rule.Expr)
	}
}

// serves asserts that the leader has a series for each selector in the query.
func (f *fleet) serves(t *testing.T, of, query string) {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	require.NoError(t, err, of)
	selectors := 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selectors++
		for _, exact := range alternatives(selector.LabelMatchers) {
			assert.True(t, slices.ContainsFunc(f.leader, func(s labels.Labels) bool { return matches(s, exact) }), "%s: nothing is %v", of, exact)
		}
		return nil
	})
	assert.Positive(t, selectors, of)
}

// alternatives replaces a matcher such as state=~"a|b" with exact matchers. It returns one list of matchers for
// each combination of values. The lists contain no matcher for the label "code".
func alternatives(matchers []*labels.Matcher) [][]*labels.Matcher {
	result := [][]*labels.Matcher{nil}
	for _, m := range matchers {
		values := []string{m.Value}
		if m.Type == labels.MatchRegexp {
			values = strings.Split(m.Value, "|")
		}
		if m.Name == "code" {
			continue // a healthy server answers with none of these codes
		}
		var longer [][]*labels.Matcher
		for _, before := range result {
			for _, value := range values {
				longer = append(longer, append(slices.Clone(before), labels.MustNewMatcher(labels.MatchEqual, m.Name, value)))
			}
		}
		result = longer
	}
	return result
}

func matches(series labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(series.Get(m.Name)) {
			return false
		}
	}
	return true
}

// Querier returns a querier of the history, so that a promql.Engine can query a history.
func (h history) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{}
		for _, s := range h.series {
			if matches(s.Labels(), matchers) {
				set.rest = append(set.rest, s)
			}
		}
		return set
	}}, nil
}

type seriesSet struct {
	current storage.Series
	rest    []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.current, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return s.current }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// A point is a value at a time. The field at is in milliseconds.
type point struct {
	at    int64
	value float64
}

func (p point) T() int64                      { return p.at }
func (p point) F() float64                    { return p.value }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }
