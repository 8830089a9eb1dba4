// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers metrics of work queues, clients and leader election
)

// newRegistry returns a registry with the metrics of the program and of its process. The
// controllers add their own metrics.
func newRegistry(m *manager) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		readBuild().collector(),
		ownerCollector{m.working.all},
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "replicakit_refused_writes_total",
			Help: "Writes that were not sent, because the manager could not prove that it held the lease. The program or its connection was stalled.",
		}, func() float64 { return float64(m.fence.Refused()) }),
		m.foreignWrites,
		m.restored,
		&m.paces,
		m.orders.deletions,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "replicakit_waiting",
			Help: "Number of conditions that the manager waits for before it starts to work, such as an answer of the API server, a namespace or a right. /readyz names them.",
		}, func() float64 { return float64(len(m.waiting.all())) }),
	)
	return registry
}

// kept contains prefixes of metric names. Kubernetes' libraries share one registry. From this
// registry, only metrics with one of these prefixes are exposed. The other metrics in the shared
// registry are about API servers, audit, client certificates and the registry itself.
var kept = []string{
	"leader_election_",
	"rest_client_request_duration_seconds",
	"rest_client_requests_total",
	"workqueue_",
}

// gatherKept gathers the metrics of Kubernetes' libraries whose names begin with one of the kept
// prefixes.
func (m *manager) gatherKept() ([]*dto.MetricFamily, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		return !slices.ContainsFunc(kept, func(prefix string) bool { return strings.HasPrefix(f.GetName(), prefix) })
	})
	for _, f := range families {
		if f.GetName() != "leader_election_master_status" || m.leads.Load() {
			continue
		}
		// client-go leaves the status at 1 when a leader gives the lease up by itself. A leader that stood back would
		// still be shown to lead, for as long as its metrics are served.
		for _, metric := range f.GetMetric() {
			metric.Gauge.Value = new(float64)
		}
	}
	return families, err
}

// An ownerCollector counts the replicas and failures of all owners in the caches, by kind. It reads
// only the owners, not their pods.
type ownerCollector struct{ cells func() []*cell }

var (
	replicaCount = prometheus.NewDesc("replicakit_replicas",
		"Replicas of all owners, as in their specs (desired) and in their statuses (current, ready, available).",
		[]string{"controller", "state"}, nil)
	failureCount = prometheus.NewDesc("replicakit_replica_failures",
		"Owners with the condition ReplicaFailure, because a pod could not be created or deleted.",
		[]string{"controller"}, nil)
	runawayCount = prometheus.NewDesc("replicakit_runaway_owners",
		"Owners for which too many pods were created in the last ten minutes, that is more than ten plus twice the highest number that they wanted in that time.",
		[]string{"controller"}, nil)
)

// Describe sends the descriptions.
func (ownerCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- replicaCount
	descs <- failureCount
	descs <- runawayCount
}

// Collect sends the counts for each kind that this manager serves now.
func (c ownerCollector) Collect(collected chan<- prometheus.Metric) {
	totals := map[string]ownerTotal{}
	for _, cell := range c.cells() {
		for _, kind := range cell.worker.controllers {
			total := totals[kind.queue]
			for _, owner := range kind.informer(cell.factory).GetStore().List() {
				total.add(owner)
			}
			total.runaway += cell.runaways[kind.name].count(time.Now())
			totals[kind.queue] = total
		}
	}
	for name, total := range totals {
		gauge := func(desc *prometheus.Desc, value int, labels ...string) {
			collected <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), append([]string{name}, labels...)...)
		}
		gauge(replicaCount, total.desired, "desired")
		gauge(replicaCount, total.current, "current")
		gauge(replicaCount, total.ready, "ready")
		gauge(replicaCount, total.available, "available")
		gauge(failureCount, total.failing)
		gauge(runawayCount, total.runaway)
	}
}

// An ownerTotal holds the total counts of several owners.
type ownerTotal struct{ desired, current, ready, available, failing, runaway int }

func (t *ownerTotal) add(owner any) {
	switch o := owner.(type) {
	case *appsv1.ReplicaSet:
		t.count(o.Spec.Replicas, o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas)
		if slices.ContainsFunc(o.Status.Conditions, func(c appsv1.ReplicaSetCondition) bool {
			return c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue
		}) {
			t.failing++
		}
	case *corev1.ReplicationController:
		t.count(o.Spec.Replicas, o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas)
		if slices.ContainsFunc(o.Status.Conditions, func(c corev1.ReplicationControllerCondition) bool {
			return c.Type == corev1.ReplicationControllerReplicaFailure && c.Status == corev1.ConditionTrue
		}) {
			t.failing++
		}
	}
}

// count adds the numbers of one owner to the totals. A nil pointer is treated as 0.
func (t *ownerTotal) count(desired *int32, current, ready, available int32) {
	if desired != nil {
		t.desired += int(*desired)
	}
	t.current += int(current)
	t.ready += int(ready)
	t.available += int(available)
}
