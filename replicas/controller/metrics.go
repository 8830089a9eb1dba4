// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Sample is the current value of one of a Controller's metrics. All samples with the same Name have the
// same Help and Type.
type Sample struct {
	// Name is the metric's name in Prometheus style, without a namespace such as "replicakit_". Help
	// describes the metric.
	Name, Help string
	Type       SampleType
	// Samples with the same Name differ in State, Reason or Kind. In metrics about watches, Kind is the
	// kind of the watched objects. If a Name has only one sample, all three fields are empty.
	State, Reason, Kind string
	// Value is the value of a Counter or Gauge, or the sum of all values in a Histogram.
	Value float64
	// Count is the number of values in a Histogram. Buckets maps each upper bound to the number of values that
	// are less than or equal to it.
	Count   uint64
	Buckets map[float64]uint64
}

// Labels returns the labels with which replicas/clientgo and replicas/controllerruntime export the sample
// to Prometheus. The label "controller" is set to the argument. The labels "state", "reason" and "kind"
// are set only if the corresponding field is not empty.
func (s Sample) Labels(controller string) map[string]string {
	labels := map[string]string{"controller": controller}
	if s.State != "" {
		labels["state"] = s.State
	}
	if s.Reason != "" {
		labels["reason"] = s.Reason
	}
	if s.Kind != "" {
		labels["kind"] = s.Kind
	}
	return labels
}

// A SampleType is the type of a metric.
type SampleType uint8

// The types of metrics. A Counter only increases, a Gauge goes up and down, and a Histogram counts values
// by their size.
const (
	Counter SampleType = iota
	Gauge
	Histogram
)

// counters returns the counters that each pass may increase.
func counters[O, C Object]() []counter[O, C] {
	type pass = Pass[O, C]
	return []counter[O, C]{
		{"children_created_total", "Children created.", func(p *pass) int { return len(p.Created) }},
		{"children_deleted_total", "Children deleted.", func(p *pass) int { return len(p.Deleted) }},
		{"child_errors_total", "Creations, deletions, adoptions and releases of children that failed.", func(p *pass) int { return p.Failed }},
		{"delete_conflicts_total", "Deletes that met a Conflict, because the child had changed or a webhook refused them.", func(p *pass) int { return p.Conflicts() }},
		{"live_lists_total", "Live lists of an owner's children, because the cache was old, deletes met a Conflict, or answers were lost.", func(p *pass) int { return p.LiveLists() }},
		{"live_reads_total", "Live reads of a child, to see whether a failed call took effect.", func(p *pass) int { return p.LiveReads() }},
		{"failed_passes_total", "Passes that ended in an error and are tried again.", func(p *pass) int { return oneIf(p.Err != nil && !isRefused(p.Err)) }},
		{"backed_off_passes_total", "Passes that did not create or delete because an earlier pass had put off these calls.", func(p *pass) int { return oneIf(p.HeldBack()) }},
		{"refused_passes_total", "Passes that could not act on the owner's spec.", func(p *pass) int { return oneIf(isRefused(p.Err)) }},
	}
}

type counter[O, C Object] struct {
	name, help string
	of         func(*Pass[O, C]) int
}

// states returns the states that an owner can have after its last pass.
func states[O, C Object]() []ownerIs[O, C] {
	type pass = Pass[O, C]
	return []ownerIs[O, C]{
		{"adoption_pending", func(p *pass) bool { return len(p.AdoptionPending) > 0 }},
		{"in_flight", func(p *pass) bool { return p.InFlight > 0 }},
		{"refused", func(p *pass) bool { return isRefused(p.Err) }},
		{"unread", func(p *pass) bool { return p.OwnerErr != nil || p.LookErr != nil }},
	}
}

const ownersHelp = "Owners whose last pass has adoptions that the server has not decided (adoption_pending), " +
	"sent creations that may still take effect (in_flight), could not act on the spec (refused), or could not read the owner, or the child of a call without an answer, from the server (unread)."

type ownerIs[O, C Object] struct {
	name string
	in   func(*Pass[O, C]) bool
}

// measures holds the metrics about passes. Controller.Metrics returns them.
type measures[O, C Object] struct {
	counters []counter[O, C]
	states   []ownerIs[O, C]

	mu     sync.Mutex
	counts []int
	in     []int                           // owners in each state
	was    map[types.NamespacedName]uint64 // the states of each owner, with one bit for each state; owners without a state are left out
	took   durations
	gates  gateBook
}

func newMeasures[O, C Object]() *measures[O, C] {
	m := &measures[O, C]{counters: counters[O, C](), states: states[O, C](), was: map[types.NamespacedName]uint64{}}
	m.counts, m.in = make([]int, len(m.counters)), make([]int, len(m.states))
	return m
}

func (m *measures[O, C]) add(p *Pass[O, C]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range m.counters {
		m.counts[i] += c.of(p)
	}
	if p.Observed {
		m.took.add(p.Took)
	}
	was, is := m.was[p.Name], uint64(0)
	for i, s := range m.states {
		bit := uint64(1) << i
		if s.in(p) {
			is |= bit
		}
		m.in[i] += oneIf(is&bit != 0) - oneIf(was&bit != 0)
	}
	if m.was[p.Name] = is; is == 0 {
		delete(m.was, p.Name)
	}
}

// standing returns the gates that were in effect at the end of the owner's last pass.
func (m *measures[O, C]) standing(owner types.NamespacedName) []Gate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gates.of[owner]
}

// noteGates records the gates of a pass, and sets p.GateChanges to the changes that should be logged.
func (m *measures[O, C]) noteGates(p *Pass[O, C], step step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lasts []GateReason
	if len(p.Created)+len(p.Deleted) > 0 {
		// The watch was a minute late, and a pod ended each minute. A pass that saw the last creation made the next
		// one, so the gate ended and soon began again, which was logged forty times in twenty minutes.
		lasts = append(lasts, CallsNotSeen)
	}
	if p.OwnerWasStale { // each ten seconds one pass goes on with the owner from the server, and all others wait
		lasts = append(lasts, OwnWriteNotSeen, OwnerStale)
	}
	p.GateChanges = m.gates.record(p.Name, p.Gates, step, lasts, p.Now)
}

func (m *measures[O, C]) samples() []Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	samples := append([]Sample{m.took.sample("sync_duration_seconds", "Duration of a pass for an owner.")}, m.gates.samples()...)
	for i, c := range m.counters {
		samples = append(samples, Sample{Name: c.name, Help: c.help, Type: Counter, Value: float64(m.counts[i])})
	}
	for i, s := range m.states {
		samples = append(samples, Sample{Name: "owners", Help: ownersHelp, Type: Gauge, State: s.name, Value: float64(m.in[i])})
	}
	return samples
}

// durations is a histogram with the upper bounds 1 ms, 4 ms, 16 ms and so on, up to about a minute.
type durations struct {
	sum   time.Duration
	count uint64
	below [durationBounds]uint64
}

const durationBounds = 9

func bound(i int) time.Duration { return time.Millisecond << (2 * i) }

func (d *durations) add(took time.Duration) {
	d.sum += took
	d.count++
	for i := range d.below {
		d.below[i] += uint64(oneIf(took <= bound(i)))
	}
}

func (d *durations) sample(name, help string) Sample {
	s := Sample{
		Name: name, Help: help, Type: Histogram,
		Value: d.sum.Seconds(), Count: d.count, Buckets: map[float64]uint64{},
	}
	for i, n := range d.below {
		s.Buckets[bound(i).Seconds()] = n
	}
	return s
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}
