package clientgo

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// metrics are those of one kind. The collectors behind them are shared by all
// controllers of one registerer.
type metrics struct {
	ageRatio       prometheus.Histogram
	staleSyncSkips *prometheus.CounterVec

	// Kubernetes has none of these.
	syncDuration                                      prometheus.Observer
	podsCreated, podsDeleted, podErrors               prometheus.Counter
	deleteConflicts, liveLists, liveReads, heldPasses prometheus.Counter
	slowPasses                                        prometheus.Gauge
	states                                            *ownerStates
}

// newMetrics registers the metrics, or takes those that another controller
// registered before (W56). A nil registerer leaves them unregistered.
func newMetrics(registerer prometheus.Registerer, kind string, pending *expectations.Store[expectations.Key]) (metrics, error) {
	r := registering{registerer: registerer, kind: kind}
	m := metrics{
		ageRatio: register(&r, prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: "replicaset_controller",
			Name:      "sorting_deletion_age_ratio",
			Help:      "[ALPHA] Age of each ready pod chosen for deletion, divided by the age of the youngest ready pod of its owner. Scale-downs by logarithmic age keep most of it below 2.",
			Buckets:   prometheus.ExponentialBuckets(0.25, 2, 6),
		})),
		staleSyncSkips: register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "replicaset_controller",
			Name:      "stale_sync_skips_total",
			Help:      "[ALPHA] Syncs put off because the watch cache was behind the controller's own writes.",
		}, []string{"group", "resource"})),
		syncDuration: register(&r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "replicakit",
			Name:      "sync_duration_seconds",
			Help:      "Time that one pass for an owner took.",
			Buckets:   prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"kind"})).WithLabelValues(kind),
		podsCreated:     r.counter("pods_created_total", "Pods, or other children, created."),
		podsDeleted:     r.counter("pods_deleted_total", "Pods, or other children, deleted."),
		podErrors:       r.counter("pod_errors_total", "Creations, deletions, adoptions and releases of pods, or other children, that failed."),
		deleteConflicts: r.counter("delete_conflicts_total", "Deletes that met a Conflict: the child had changed, or a webhook refused."),
		liveLists:       r.counter("live_lists_total", "Lists of an owner's children past the cache: the cache was known to be old, deletes met a Conflict, or answers were lost."),
		liveReads:       r.counter("live_reads_total", "Reads of a child past the cache, to see what became of a call that failed."),
		heldPasses:      r.counter("held_passes_total", "Passes that created or deleted nothing, as an earlier one had put it off."),
		slowPasses:      r.gauge("slow_passes", "Passes under way that have taken longer than a second: other workers have taken their place.", "kind").WithLabelValues(kind),
		states: newOwnerStates(r.gauge("owners",
			"Owners whose last pass held creations or deletions back, waited for something, has adoptions that the server has not decided, or sent creations of which it is not known what became.",
			"kind", "state").MustCurryWith(prometheus.Labels{"kind": kind})),
	}
	register(&r, newPendingCollector(kind, pending))
	return m, r.err
}

// registering registers collectors, and keeps what goes wrong.
type registering struct {
	registerer prometheus.Registerer
	kind       string
	err        error
}

func (r *registering) counter(name, help string) prometheus.Counter {
	opts := prometheus.CounterOpts{Namespace: "replicakit", Name: name, Help: help}
	return register(r, prometheus.NewCounterVec(opts, []string{"kind"})).WithLabelValues(r.kind)
}

func (r *registering) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "replicakit", Name: name, Help: help}, labels))
}

func register[C prometheus.Collector](r *registering, collector C) C {
	if r.registerer == nil {
		return collector
	}
	err := r.registerer.Register(collector)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	r.err = errors.Join(r.err, err)
	return collector
}

// The states of owners that are counted.
const (
	held = iota
	waiting
	undecided
	unresolved
	ownerStateCount
)

type ownerState [ownerStateCount]bool

// ownerStates counts the owners in each state, by their last passes. It keeps
// those only that are in one.
type ownerStates struct {
	counts [ownerStateCount]prometheus.Gauge

	mu sync.Mutex
	of map[types.NamespacedName]ownerState
}

func newOwnerStates(counts *prometheus.GaugeVec) *ownerStates {
	s := &ownerStates{of: map[types.NamespacedName]ownerState{}}
	for i, name := range [ownerStateCount]string{"held", "waiting", "undecided adoptions", "unresolved creations"} {
		s.counts[i] = counts.WithLabelValues(name)
	}
	return s
}

func (s *ownerStates) set(owner types.NamespacedName, is ownerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.of[owner]
	if was == is {
		return
	}
	if s.of[owner] = is; is == (ownerState{}) {
		delete(s.of, owner)
	}
	for i, count := range s.counts {
		switch {
		case is[i] && !was[i]:
			count.Inc()
		case was[i] && !is[i]:
			count.Dec()
		}
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
