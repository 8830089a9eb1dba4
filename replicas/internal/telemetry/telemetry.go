// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package telemetry turns the passes of a controller.Controller into metrics and log lines. It knows of a pass only
// what Kind.Observe gets. The modules replicas/clientgo and replicas/controllerruntime serve the metrics and write
// the lines.
package telemetry

import (
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/follow"
	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A Sample is the current value of a metric. All samples with the same Name have the same Help and Type.
type Sample struct {
	// Name is the metric's name in Prometheus style, without a namespace such as "replicakit_". Help
	// describes the metric.
	Name, Help string
	Type       Type
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

// Labels returns the labels with which the sample is exported. The label "controller" is set to the argument.
// The labels "state", "reason" and "kind" are set only if the corresponding field is not empty.
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

// A Type is the type of a metric.
type Type uint8

// The types of metrics. A Counter only increases, a Gauge goes up and down, and a Histogram counts values
// by their size.
const (
	Counter Type = iota
	Gauge
	Histogram
)

// OfWatches returns the metrics about the watches of a controller.
func OfWatches(watches follow.Watches) (samples []Sample) {
	for _, s := range watches.Samples() {
		is := Gauge
		if s.Counter {
			is = Counter
		}
		samples = append(samples, Sample{Name: s.Name, Help: s.Help, Type: is, Kind: s.Kind, Value: s.Value})
	}
	return samples
}

// counters returns the counters that each pass may increase.
func counters[O, C controller.Object]() []counter[O, C] {
	type pass = controller.Pass[O, C]
	return []counter[O, C]{
		{"children_created_total", "Children created.", func(p *pass) int { return len(p.Created) }},
		{"children_deleted_total", "Children deleted.", func(p *pass) int { return len(p.Deleted) }},
		{"children_changed_total", "Children changed in place.", func(p *pass) int { return len(p.Changed) }},
		{"children_retired_total", "Children asked to leave.", func(p *pass) int { return len(p.Retired) }},
		{"children_recalled_total", "Children that were asked to leave, and were taken back.", func(p *pass) int { return len(p.Recalled) }},
		{"child_errors_total", "Creations, deletions, changes, adoptions and releases of children that failed.", func(p *pass) int { return p.Failed }},
		{"delete_conflicts_total", "Deletes that met a Conflict, because the child had changed or a webhook refused them.", func(p *pass) int { return Conflicts(p.Calls) }},
		{"live_lists_total", "Live lists of an owner's children, because the cache was old, deletes met a Conflict, or answers were lost.", func(p *pass) int { return LiveLists(p.Calls) }},
		{"live_reads_total", "Live reads of a child, to see whether a failed call took effect.", func(p *pass) int { return LiveReads(p.Calls) }},
		{"failed_passes_total", "Passes that ended in an error and are tried again.", func(p *pass) int { return oneIf(p.Err != nil && !isRefused(p.Err)) }},
		{"backed_off_passes_total", "Passes that did not create, delete or change because an earlier pass had put off these calls.", func(p *pass) int { return oneIf(p.HeldBack()) }},
		{"refused_passes_total", "Passes that could not act on the owner's spec.", func(p *pass) int { return oneIf(isRefused(p.Err)) }},
	}
}

type counter[O, C controller.Object] struct {
	name, help string
	of         func(*controller.Pass[O, C]) int
}

// states returns the states that an owner can have after its last pass.
func states[O, C controller.Object]() []ownerIs[O, C] {
	type pass = controller.Pass[O, C]
	return []ownerIs[O, C]{
		{"adoption_pending", func(p *pass) bool { return Has(p.Gates, controller.AdoptionUndecided) }},
		{"in_flight", func(p *pass) bool { return p.InFlight > 0 }},
		{"refused", func(p *pass) bool { return isRefused(p.Err) }},
		{"unread", func(p *pass) bool {
			return Has(p.Standing, controller.OwnerUnread) || Has(p.Standing, controller.LookFailed) || count(p.Calls, isFailedRead) > 0
		}},
	}
}

const ownersHelp = "Owners whose last pass has adoptions that the server has not decided (adoption_pending), " +
	"sent creations that may still take effect (in_flight), could not act on the spec (refused), or could not read the owner, or the child of a call without an answer, from the server (unread)."

type ownerIs[O, C controller.Object] struct {
	name string
	in   func(*controller.Pass[O, C]) bool
}

// Has reports whether there is a gate with the given reason.
func Has(gates []controller.Gate, reason controller.GateReason) bool {
	return slices.ContainsFunc(gates, func(g controller.Gate) bool { return g.Reason == reason })
}

// isFailedRead reports whether a call did not find out about the owner. A creation may go on without that.
func isFailedRead(c controller.Call) bool {
	return c.Verb == "GetOwner" && c.Err != nil && !apierrors.IsNotFound(c.Err)
}

// isRefused reports whether an error of a pass contains a RefusedError.
func isRefused(err error) bool {
	if err == nil {
		return false
	}
	var refused *replicas.RefusedError
	return errors.As(err, &refused) && refused != nil
}

// Conflicts returns the number of delete calls that failed with a Conflict.
func Conflicts(calls []controller.Call) int {
	return count(calls, func(c controller.Call) bool { return c.Verb == "Delete" && apierrors.IsConflict(c.Err) })
}

// LiveLists returns the number of calls that listed children on the server instead of in the cache.
func LiveLists(calls []controller.Call) int {
	return count(calls, func(c controller.Call) bool { return c.Verb == "List" })
}

// LiveReads returns the number of calls that read a single child from the server instead of from the cache.
func LiveReads(calls []controller.Call) int {
	return count(calls, func(c controller.Call) bool { return c.Verb == "Get" })
}

func count(calls []controller.Call, f func(controller.Call) bool) (n int) {
	for _, c := range calls {
		n += oneIf(f(c))
	}
	return n
}

// A Recorder keeps the metrics of one Controller. Make it with New. It is safe for concurrent use.
type Recorder[O, C controller.Object] struct {
	counters []counter[O, C]
	states   []ownerIs[O, C]

	mu     sync.Mutex
	counts []int
	in     []int                           // owners in each state
	was    map[types.NamespacedName]uint64 // the states of each owner, with one bit for each state; owners without a state are left out
	took   durations
	gates  map[types.NamespacedName][]controller.Gate // the gates that stood after each owner's last pass
	lasted durations                                  // durations of the gates that have ended
}

// New returns a Recorder that has seen no pass.
func New[O, C controller.Object]() *Recorder[O, C] {
	r := &Recorder[O, C]{
		counters: counters[O, C](), states: states[O, C](),
		was: map[types.NamespacedName]uint64{}, gates: map[types.NamespacedName][]controller.Gate{},
	}
	r.counts, r.in = make([]int, len(r.counters)), make([]int, len(r.states))
	return r
}

// Record counts a pass. Call it once for each pass that Kind.Observe gets. It returns the changes of gates that are
// worth a line in a log.
func (r *Recorder[O, C]) Record(p controller.Pass[O, C]) []GateChange {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range r.counters {
		r.counts[i] += c.of(&p)
	}
	if p.Observed {
		r.took.add(p.Took)
	}
	was, is := r.was[p.Name], uint64(0)
	for i, s := range r.states {
		bit := uint64(1) << i
		if s.in(&p) {
			is |= bit
		}
		r.in[i] += oneIf(is&bit != 0) - oneIf(was&bit != 0)
	}
	if r.was[p.Name] = is; is == 0 {
		delete(r.was, p.Name)
	}
	return r.recordGates(p.Name, p.Standing, p.Now)
}

func (r *Recorder[O, C]) recordGates(owner types.NamespacedName, stand []controller.Gate, now time.Time) (changes []GateChange) {
	before := r.gates[owner]
	for _, g := range stand {
		if i := indexOf(before, g); g.Lasting && (i < 0 || !before[i].Lasting || isOther(before[i], g)) {
			changes = append(changes, GateChange{Gate: g})
		}
	}
	for _, g := range before {
		if indexOf(stand, g) >= 0 {
			continue
		}
		if r.lasted.add(now.Sub(g.Since)); g.Lasting {
			changes = append(changes, GateChange{Gate: g, Ended: true})
		}
	}
	if r.gates[owner] = stand; len(stand) == 0 {
		delete(r.gates, owner)
	}
	return changes
}

func indexOf(gates []controller.Gate, gate controller.Gate) int {
	return slices.IndexFunc(gates, func(g controller.Gate) bool { return g.Reason == gate.Reason && g.Object == gate.Object })
}

// isOther reports whether a gate now stops something else, or has another error than before.
func isOther(before, now controller.Gate) bool {
	return before.Stops != now.Stops || joined.WithoutName(before.Err) != joined.WithoutName(now.Err)
}

// Samples returns the metrics in a fixed order.
func (r *Recorder[O, C]) Samples() []Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	samples := []Sample{
		r.took.sample("sync_duration_seconds", "Duration of a pass for an owner."),
		r.lasted.sample("gate_duration_seconds", "How long a gate held an owner back."),
	}
	owners := map[controller.GateReason]int{}
	for _, gates := range r.gates {
		for i, g := range gates {
			owners[g.Reason] += oneIf(!Has(gates[:i], g.Reason))
		}
	}
	for reason := controller.GateReason(1); reason.String() != ""; reason++ {
		samples = append(samples, Sample{
			Name: "gated_owners", Help: "Owners that are held back, by reason.", Type: Gauge, Reason: reason.String(), Value: float64(owners[reason]),
		})
	}
	for i, c := range r.counters {
		samples = append(samples, Sample{Name: c.name, Help: c.help, Type: Counter, Value: float64(r.counts[i])})
	}
	for i, s := range r.states {
		samples = append(samples, Sample{Name: "owners", Help: ownersHelp, Type: Gauge, State: s.name, Value: float64(r.in[i])})
	}
	return samples
}

// A GateChange reports that a gate of an owner has begun, changed or ended.
type GateChange struct {
	controller.Gate
	// Ended is true if the gate no longer holds anything back. If Ended is false, the gate is reported for
	// the first time, or its Err or Stops has changed.
	Ended bool
}

// Log returns the change as a message with keys and values, for a structured log. The keys "reason", "why"
// and "since" are always present. The keys "stops", "object", "until" and "err" are left out if their
// values are empty. If the gate has ended, "until" is also left out.
func (c GateChange) Log() (message string, values []any) {
	if message = "Held back"; c.Ended {
		message = "No longer held back"
	}
	values = []any{"reason", c.Reason.String(), "why", c.Reason.Sentence()}
	if c.Stops != 0 {
		values = append(values, "stops", c.Stops.String())
	}
	if c.Object != "" {
		values = append(values, "object", c.Object)
	}
	values = append(values, "since", c.Since)
	if !c.Until.IsZero() && !c.Ended {
		values = append(values, "until", c.Until)
	}
	if c.Err != nil {
		values = append(values, "err", c.Err.Error())
	}
	return message, values
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
