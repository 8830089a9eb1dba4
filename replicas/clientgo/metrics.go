package clientgo

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/status"
)

// metrics are shared by all controllers of one registerer.
type metrics struct {
	ageRatio       prometheus.Histogram
	staleSyncSkips *prometheus.CounterVec
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
	return metrics{ageRatio: ageRatio, staleSyncSkips: skips}, errors.Join(ageErr, skipsErr)
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
func (m metrics) observeAgeRatio(owned []*corev1.Pod, victims []podrank.Victim, now time.Time) {
	if len(victims) == len(owned) {
		return
	}
	youngest := youngestReadyAge(owned, now)
	if youngest <= 0 {
		return
	}
	for _, v := range victims {
		if status.IsPodReady(v.Pod) {
			m.ageRatio.Observe(age(v.Pod, now).Seconds() / youngest.Seconds())
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
