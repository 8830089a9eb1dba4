// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// kinds lists the kinds of calls that controllers make. During a measurement, the bench itself makes no calls
// of these kinds, except that it deletes the pods of a lost node pool. Therefore the server's counters
// contain only the controller's calls and these deletions.
var kinds = []string{
	"POST pods", "DELETE pods", "PATCH pods", "GET pods", "LIST pods",
	statusWrites, "GET replicasets",
	"POST events", "PATCH events",
}

// statusWrites is the kind of calls that write the status of a ReplicaSet. Kubernetes' controller sends an
// update, and our controller sends a patch.
const statusWrites = "writes of replicasets/status"

// A tally holds the values of an API server's counters. Each counter starts at 0 when the server starts.
type tally struct {
	calls   map[string]float64 // by kind
	refused float64            // number of these calls that the server refused
	changed float64            // number of deletions of pods that failed with a Conflict
	sent    float64            // number of events sent to all watches, including the watches of the bench
	cpu     float64            // seconds
}

func readTally(text io.Reader) (tally, error) {
	t := tally{calls: make(map[string]float64)}
	families, err := parseMetrics(text)
	if err != nil {
		return t, err
	}
	t.cpu = sum(families["process_cpu_seconds_total"], nil)
	t.sent = sum(families["apiserver_watch_events_total"], nil)
	for _, m := range families["apiserver_request_total"].GetMetric() {
		kind := label(m, "verb") + " " + label(m, "resource")
		if sub := label(m, "subresource"); sub != "" {
			kind += "/" + sub
		}
		if kind == "PUT replicasets/status" || kind == "PATCH replicasets/status" {
			kind = statusWrites
		}
		if !slices.Contains(kinds, kind) {
			continue
		}
		t.calls[kind] += m.GetCounter().GetValue()
		if !strings.HasPrefix(label(m, "code"), "2") {
			t.refused += m.GetCounter().GetValue()
		}
		if kind == "DELETE pods" && label(m, "code") == "409" {
			t.changed += m.GetCounter().GetValue()
		}
	}
	return t, nil
}

// since returns the difference between this tally and an earlier tally.
func (t tally) since(before tally) tally {
	calls := make(map[string]float64, len(t.calls))
	for kind, n := range t.calls {
		calls[kind] = n - before.calls[kind]
	}
	return tally{calls: calls, refused: t.refused - before.refused, changed: t.changed - before.changed, sent: t.sent - before.sent, cpu: t.cpu - before.cpu}
}

func (t tally) writes() (n float64) {
	for kind, calls := range t.calls {
		if verb, _, _ := strings.Cut(kind, " "); verb != "GET" && verb != "LIST" {
			n += calls
		}
	}
	return n
}

// readCount returns the value of a work queue metric for the queue of ReplicaSets. The value of a histogram
// is the number of its observations. The queue and its metrics have the same names in both programs.
func readCount(text io.Reader, metric string) (float64, error) {
	families, err := parseMetrics(text)
	if err != nil {
		return 0, err
	}
	return sum(families[metric], func(m *dto.Metric) bool { return label(m, "name") == "replicaset" }), nil
}

func parseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(text)
}

// sum returns the sum of the values of the family's metrics. If a filter is given, the sum contains only
// the metrics for which the filter returns true.
func sum(family *dto.MetricFamily, wanted func(*dto.Metric) bool) (total float64) {
	for _, m := range family.GetMetric() {
		if wanted != nil && !wanted(m) {
			continue
		}
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return total
}

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
