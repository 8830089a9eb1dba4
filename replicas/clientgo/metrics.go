package clientgo

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// metrics are shared by all controllers of one registerer.
type metrics struct {
	ageRatio       prometheus.Histogram
	staleSyncSkips *prometheus.CounterVec

	// By kind; Kubernetes has none of these.
	syncDuration                        *prometheus.HistogramVec
	podsCreated, podsDeleted, podErrors *prometheus.CounterVec

	deleteConflicts, liveLists, heldPasses *prometheus.CounterVec
	slowPasses                             *prometheus.GaugeVec
}

// newMetrics registers the metrics, or takes those that another controller
// registered before (W56). A nil registerer leaves them unregistered.
func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	ageRatio, ageErr := register(registerer, prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "replicaset_controller",
		Name:      "sorting_deletion_age_ratio",
		Help:      "[ALPHA] Age of each ready pod chosen for deletion, divided by the age of the youngest ready pod of its owner. Scale-downs by logarithmic age keep most of it below 2.",
		Buckets:   prometheus.ExponentialBuckets(0.25, 2, 6),
	}))
	skips, skipsErr := register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "replicaset_controller",
		Name:      "stale_sync_skips_total",
		Help:      "[ALPHA] Syncs put off because the watch cache was behind the controller's own writes.",
	}, []string{"group", "resource"}))
	duration, durationErr := register(registerer, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "replicakit",
		Name:      "sync_duration_seconds",
		Help:      "Time that one pass for an owner took.",
		Buckets:   prometheus.ExponentialBuckets(0.001, 4, 9),
	}, []string{"kind"}))
	created, createdErr := registerCounter(registerer, "pods_created_total", "Pods created.")
	deleted, deletedErr := registerCounter(registerer, "pods_deleted_total", "Pods deleted.")
	failed, failedErr := registerCounter(registerer, "pod_errors_total", "Creations, deletions, adoptions and releases of pods that failed.")
	conflicts, conflictsErr := registerCounter(registerer, "delete_conflicts_total", "Deletes of pods that met a Conflict: the pod had changed, or a webhook refused.")
	lists, listsErr := registerCounter(registerer, "live_lists_total", "Lists of an owner's pods past the cache, after such a Conflict.")
	held, heldErr := registerCounter(registerer, "held_passes_total", "Passes that created or deleted nothing, as an earlier one had put it off.")
	slow, slowErr := register(registerer, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "replicakit",
		Name:      "slow_passes",
		Help:      "Passes under way that have taken longer than a second: other workers have taken their place.",
	}, []string{"kind"}))
	return metrics{
		ageRatio: ageRatio, staleSyncSkips: skips,
		syncDuration: duration, podsCreated: created, podsDeleted: deleted, podErrors: failed,
		deleteConflicts: conflicts, liveLists: lists, heldPasses: held, slowPasses: slow,
	}, errors.Join(ageErr, skipsErr, durationErr, createdErr, deletedErr, failedErr, conflictsErr, listsErr, heldErr, slowErr)
}

func registerCounter(registerer prometheus.Registerer, name, help string) (*prometheus.CounterVec, error) {
	return register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "replicakit", Name: name, Help: help}, []string{"kind"}))
}

// observePass counts what a pass did.
func (m metrics) observePass(kind string, result replicas.Result, took time.Duration) {
	m.syncDuration.WithLabelValues(kind).Observe(took.Seconds())
	m.podsCreated.WithLabelValues(kind).Add(float64(len(result.Created)))
	m.podsDeleted.WithLabelValues(kind).Add(float64(len(result.Deleted)))
	m.podErrors.WithLabelValues(kind).Add(float64(result.Failed))
	m.deleteConflicts.WithLabelValues(kind).Add(float64(result.Conflicts))
	m.liveLists.WithLabelValues(kind).Add(float64(result.LiveLists))
	if result.Held {
		m.heldPasses.WithLabelValues(kind).Inc()
	}
}

// A pendingCollector counts the owners whose expectations are not met: those
// that wait, and those that have waited too long. What has expired and stays is
// a leak.
type pendingCollector struct {
	desc    *prometheus.Desc
	pending *expectations.Store[expectations.Key]
}

func newPendingCollector(kind string, pending *expectations.Store[expectations.Key]) pendingCollector {
	return pendingCollector{prometheus.NewDesc("replicakit_expectations",
		"Owners with creations or deletions that were started and not yet seen.",
		[]string{"state"}, prometheus.Labels{"kind": kind}), pending}
}

func (c pendingCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

func (c pendingCollector) Collect(collected chan<- prometheus.Metric) {
	owners := map[expectations.State]float64{}
	for key := range c.pending.All() {
		state, _ := c.pending.State(key)
		owners[state]++
	}
	for name, state := range map[string]expectations.State{"waiting": expectations.Waiting, "expired": expectations.Expired} {
		collected <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, owners[state], name)
	}
}

func register[C prometheus.Collector](registerer prometheus.Registerer, collector C) (C, error) {
	if registerer == nil {
		return collector, nil
	}
	err := registerer.Register(collector)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return collector, err
}

// observeAgeRatio observes what was chosen among more pods than had to go (N2).
//
// Differs from Kubernetes: the ratio is not cut to a whole number, and nothing is
// observed where the youngest ready pod has no age yet, instead of dividing by
// zero (W1).
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

// youngestReadyAge is 0 where no pod is ready.
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
