package controllerruntime

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A counter counts something of each pass, by controller.
type counter[O, C client.Object] struct {
	name, help string
	of         func(controller.Pass[O, C]) int
}

func counters[O, C client.Object]() []counter[O, C] {
	type pass = controller.Pass[O, C]
	return []counter[O, C]{
		{"children_created_total", "Children created.", func(p pass) int { return len(p.Created) }},
		{"children_deleted_total", "Children deleted.", func(p pass) int { return len(p.Deleted) }},
		{"child_errors_total", "Creations, deletions, adoptions and releases of children that failed.", func(p pass) int { return p.Failed }},
		{"delete_conflicts_total", "Deletes of children that met a Conflict: the child had changed, or a webhook refused.", func(p pass) int { return p.Conflicts }},
		{"live_lists_total", "Lists of an owner's children past the cache.", func(p pass) int { return p.LiveLists }},
		{"live_reads_total", "Reads of one child past the cache.", func(p pass) int { return p.LiveReads }},
		{"held_passes_total", "Passes that created or deleted nothing, as an earlier one had put it off.", func(p pass) int { return one(p.Held) }},
		{"undecided_passes_total", "Passes with orphans whose adoption nobody has decided.", func(p pass) int { return one(len(p.Undecided) > 0) }},
		{"unresolved_passes_total", "Passes with creations of which nobody knows whether they will take effect.", func(p pass) int { return one(p.Unresolved > 0) }},
		{"refused_passes_total", "Passes that could not act on the owner's spec.", func(p pass) int { return one(isRefused(p.Err)) }},
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// counting returns what counts a pass of a controller. All controllers of a
// registry share the metrics.
func counting[O, C client.Object](registry prometheus.Registerer, name string) (count func(controller.Pass[O, C]), err error) {
	list := counters[O, C]()
	registered := make([]prometheus.Counter, len(list))
	for i, c := range list {
		vec, err := register(registry, prometheus.NewCounterVec(
			prometheus.CounterOpts{Namespace: "replicakit", Name: c.name, Help: c.help}, []string{"controller"}))
		if err != nil {
			return nil, err
		}
		registered[i] = vec.WithLabelValues(name)
	}
	return func(pass controller.Pass[O, C]) {
		for i, c := range list {
			registered[i].Add(float64(c.of(pass)))
		}
	}, nil
}

func register[C prometheus.Collector](registry prometheus.Registerer, collector C) (C, error) {
	err := registry.Register(collector)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return collector, err
}

// A pendingCollector counts the owners whose expectations are not met: those
// that wait, and those that have waited too long.
type pendingCollector struct {
	desc    *prometheus.Desc
	pending *expectations.Store[expectations.Key]
}

// registerPending registers the collector of a controller, in place of that of a
// former one of its name.
func registerPending(registry prometheus.Registerer, name string, pending *expectations.Store[expectations.Key]) error {
	c := pendingCollector{prometheus.NewDesc("replicakit_expectations",
		"Owners with creations or deletions that were started and not yet seen.",
		[]string{"state"}, prometheus.Labels{"controller": name}), pending}
	registry.Unregister(c)
	return registry.Register(c)
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
