// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

const metricsNamespace = "replicakit_"

// registering is held so that two controllers with the same name do not register their metrics at the same time.
var registering sync.Mutex

// registerMetrics registers the metrics of a controller in place of those of an earlier one with the same name.
func registerMetrics(registry prometheus.Registerer, name string, samples func() []telemetry.Sample) error {
	registering.Lock()
	defer registering.Unlock()
	collects := collector{name, samples}
	registry.Unregister(collects)
	return registry.Register(collects)
}

// A collector serves the metrics of a controller.Controller and of its watches.
type collector struct {
	name    string
	samples func() []telemetry.Sample
}

func (c collector) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, descs) }

func (c collector) Collect(collected chan<- prometheus.Metric) {
	for _, s := range c.samples() {
		desc := prometheus.NewDesc(metricsNamespace+s.Name, s.Help, nil, s.Labels(c.name))
		switch s.Type {
		case telemetry.Histogram:
			collected <- prometheus.MustNewConstHistogram(desc, s.Count, s.Value, s.Buckets)
		case telemetry.Gauge:
			collected <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Value)
		case telemetry.Counter:
			collected <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, s.Value)
		}
	}
}
