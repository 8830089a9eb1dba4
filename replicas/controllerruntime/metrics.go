package controllerruntime

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/replicakit/replicakit/replicas/controller"
)

const metricsNamespace, controllerLabel, stateLabel = "replicakit_", "controller", "state"

// registerMetrics registers what a controller tells of itself, in place of a former
// one of its name.
func registerMetrics(registry prometheus.Registerer, name string, c *controller.Controller) error {
	collects := collector{name, c}
	registry.Unregister(collects)
	return registry.Register(collects)
}

// A collector serves what a controller.Controller tells of itself.
type collector struct {
	name       string
	controller *controller.Controller
}

func (c collector) describe(s controller.Sample) (desc *prometheus.Desc, labels []string) {
	var names []string
	if s.State != "" {
		names, labels = []string{stateLabel}, []string{s.State}
	}
	return prometheus.NewDesc(metricsNamespace+s.Name, s.Help, names, prometheus.Labels{controllerLabel: c.name}), labels
}

func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, s := range c.controller.Metrics() {
		desc, _ := c.describe(s)
		descs <- desc
	}
}

func (c collector) Collect(collected chan<- prometheus.Metric) {
	for _, s := range c.controller.Metrics() {
		desc, labels := c.describe(s)
		switch s.Type {
		case controller.Histogram:
			collected <- prometheus.MustNewConstHistogram(desc, s.Count, s.Value, s.Buckets, labels...)
		case controller.Gauge:
			collected <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Value, labels...)
		case controller.Counter:
			collected <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, s.Value, labels...)
		}
	}
}
