// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/status"
)

// metrics holds the metrics of a Controller, without those of package telemetry. All controllers with the same
// registerer share the collectors.
type metrics struct {
	ageRatio prometheus.Histogram
	// The passes that waited for the cache of owners, and for that of children: one counter for each resource.
	staleOwners, staleChildren prometheus.Counter
	slowPasses                 prometheus.Gauge // Kubernetes has no such metric
}

// newMetrics registers the metrics, unless registerer is nil.
func newMetrics(registerer prometheus.Registerer, name string, samples func() []telemetry.Sample, owners, children schema.GroupVersionKind) (metrics, error) {
	r := registering{registerer: registerer}
	m := metrics{
		ageRatio: register(&r, prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: "replicaset_controller",
			Name:      "sorting_deletion_age_ratio",
			Help:      "[ALPHA] Age of each ready pod chosen for deletion, divided by the age of the youngest ready pod of its owner. If scale-downs go by logarithmic age, most values are below 2.",
			Buckets:   prometheus.ExponentialBuckets(0.25, 2, 6),
		})),
		slowPasses: register(&r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricsNamespace + "slow_passes",
			Help: "Passes under way that have taken longer than a second. Other workers have taken their place.",
		}, []string{"controller"})).WithLabelValues(name),
	}
	staleSyncSkips := register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "replicaset_controller",
		Name:      "stale_sync_skips_total",
		Help:      "[ALPHA] Syncs put off because the watch cache was behind the controller's own writes.",
	}, []string{"group", "resource"}))
	skips := func(kind schema.GroupVersionKind) prometheus.Counter {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		return staleSyncSkips.WithLabelValues(resource.Group, resource.Resource) // exports 0, so that the first increase is visible
	}
	m.staleOwners, m.staleChildren = skips(owners), skips(children)
	r.replace(collector{name, samples})
	return m, r.err
}

const metricsNamespace = "replicakit_"

// A registering adds collectors to a registerer, and joins the errors that occur.
type registering struct {
	registerer prometheus.Registerer
	err        error
}

// replace registers a collector in place of that of an earlier controller of the same name.
func (r *registering) replace(c collector) {
	if r.registerer != nil {
		r.registerer.Unregister(c)
		// Two Kinds with the same owners have the same default Name, and different children. Unregister does not
		// find the other one's collector, because their labels differ.
		if err := r.registerer.Register(c); err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("another controller has the name %q: set Options.Name: %w", c.name, err))
		}
	}
}

func register[C prometheus.Collector](r *registering, collector C) C {
	if r.registerer == nil {
		return collector
	}
	err := r.registerer.Register(collector)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(C); ok { // of another controller in this process (W56)
			return existing
		}
	}
	r.err = errors.Join(r.err, err)
	return collector
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

// observeAgeRatio observes the age of each ready pod that was chosen for deletion, divided by the age of the
// youngest ready pod (N2), unless all pods were chosen.
//
// Differs from Kubernetes: the ratio is not truncated to a whole number, and nothing is observed if the age of
// the youngest ready pod is 0, where Kubernetes divides by zero (W1).
func (m metrics) observeAgeRatio(owned []*corev1.Pod, victims []replicas.Deletion[*corev1.Pod], now time.Time) {
	if len(victims) == len(owned) {
		return
	}
	youngest := youngestReadyAge(owned, now)
	if youngest <= 0 {
		return
	}
	for _, v := range victims {
		if status.IsPodReady(v.Object) {
			m.ageRatio.Observe(age(v.Object, now).Seconds() / youngest.Seconds())
		}
	}
}

// youngestReadyAge returns the age of the youngest ready pod, or 0 if no pod is ready.
func youngestReadyAge(pods []*corev1.Pod, now time.Time) time.Duration {
	var youngest time.Time
	for _, pod := range pods {
		if pod.CreationTimestamp.After(youngest) && status.IsPodReady(pod) {
			youngest = pod.CreationTimestamp.Time
		}
	}
	if youngest.IsZero() {
		return 0
	}
	return now.Sub(youngest)
}

func age(pod *corev1.Pod, now time.Time) time.Duration { return now.Sub(pod.CreationTimestamp.Time) }
