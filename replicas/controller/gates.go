// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/replicas"
)

// A Gate is one reason why a pass held something back. Pass.Gates lists them all: if that is
// empty, nothing was held back. A call that the server refused, and after which nothing is held back, is
// an error of the pass and has an event.
//
// An administrator sees gates in the log of both adapters ("Held back", if it lasts for a second), in the
// metric gated_owners, which counts the owners by reason, and in events DeletionsHeld and the like. The
// program replicakit-controller has the last passes of each owner, as Pass.String describes them, under
// /debug/passes. An author sees them in Pass.Gates, and in Outcome.Gates for the status.
type Gate struct {
	Reason Reason
	// Stops says what the pass did not do because of it. It is 0 if the gate is only to be
	// known, such as a release that the server refused.
	Stops Stops
	// Since is the first of the passes that met this gate one after the other, or when the
	// calls had ended that led to it.
	Since time.Time
	// Until is when the Controller looks again. It is zero if that is when something
	// changes: the owner, its children, or what the author's code says.
	Until time.Time
	// Object is the name of the child or of the namespace that it is about; "" if that is
	// the owner, or several children.
	Object string
	// Err is the error that led to it; nil if none did.
	Err error

	// Earlier says that an earlier pass had put off what the gate stops: this one did not
	// try.
	Earlier bool

	waits bool // the number of children is left alone because of it
	told  bool // a log has told of it
}

// String tells the gate in one line.
func (g Gate) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%v", g.Reason)
	if g.Object != "" {
		fmt.Fprintf(&text, " of %s", g.Object)
	}
	if g.Stops != 0 {
		fmt.Fprintf(&text, " stops %v", g.Stops)
	}
	fmt.Fprintf(&text, " since %s", g.Since.UTC().Format(time.RFC3339))
	if !g.Until.IsZero() {
		fmt.Fprintf(&text, " until %s", g.Until.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(&text, ": %s", g.Reason.Sentence())
	if g.Err != nil {
		fmt.Fprintf(&text, " (%v)", g.Err)
	}
	return text.String()
}

// Stops are the parts of a pass that a gate stops, for all children or for some.
type Stops uint8

// The parts of a pass.
const (
	StopsClaims Stops = 1 << iota
	StopsCreations
	StopsDeletions

	stopsAll   = StopsClaims | StopsCreations | StopsDeletions
	stopsScale = StopsCreations | StopsDeletions
)

// String lists the parts: "claims, creations, deletions".
func (s Stops) String() string {
	var parts []string
	for i, part := range []string{"claims", "creations", "deletions"} {
		if s&(1<<i) != 0 {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// A Reason says why something was held back. The zero Reason is none.
type Reason uint8

// The reasons, in the order in which a pass meets them.
const (
	OwnWriteNotSeen Reason = 1 + iota
	OwnerStale
	OwnerGone
	SpecRefused
	StrayLeft
	Paused
	OwnerDeleted
	CallsNotSeen
	CacheBehind
	ListFailed
	ListsBusy
	RelatedFailed
	OwnerUnread
	AdoptionUndecided
	AdoptionRefused
	ReleaseFailed
	ReleaseUndone
	DeletionInFlight
	MustStay
	MissingFirst
	MaxDeletions
	Burst
	Conflict
	ConflictAgain
	DeletionRetryAfter
	DeletionFailed
	LookFailed
	CreationInFlight
	Author
	LastRoundEnded
	NamespaceGoing
	QuotaFull
	RetryAfter
	CreationFailed
	ChangedByWebhook
	NameTaken
	StatusForbidden
	reasons // how many there are, with the zero Reason
)

// A step of a pass. A pass that ends before a step leaves its gates as they were.
type step uint8

const (
	looks step = iota
	plans
	claims
	scales
)

// A row says what is the same for all gates of a reason.
type row struct {
	name     string
	step     step
	stops    Stops
	waits    bool // the number of children is left alone because of it
	fails    bool // its error is one of the pass, and its wait takes the place of the rate limiter
	atOnce   bool // a log has it at once, because it lasts until somebody does something
	ofSpec   bool // a new generation of the owner ends its hold
	first    time.Duration
	last     time.Duration // a hold doubles from the first to the last
	ends     string        // early
	event    string        // the reason of the event; "" if there is none
	sentence string
}

// The rows make the tables of docs/pass.md and docs/metrics.md.
var rows = [reasons]row{
	OwnWriteNotSeen: {
		name: "OwnWriteNotSeen", step: looks, stops: stopsAll, waits: true,
		ends:     "the cache shows it",
		sentence: "the cache does not show an earlier write of the Controller yet",
	},
	OwnerStale: {
		name: "OwnerStale", step: looks, stops: stopsAll, waits: true, fails: true, first: 50 * time.Millisecond, last: time.Second,
		ends:     "the cache shows it, or a read agrees",
		sentence: "the cache has an older owner than the server",
	},
	OwnerGone: {
		name: "OwnerGone", step: looks, stops: stopsAll, waits: true, fails: true, first: 50 * time.Millisecond, last: 5 * time.Minute,
		ends:     "the cache shows it, or a read agrees",
		sentence: "the server does not have the owner that the cache has",
	},
	SpecRefused: {
		name: "SpecRefused", step: looks, stops: stopsAll, atOnce: true, ofSpec: true,
		ends: "the owner changes", event: "its own",
		sentence: "the owner's spec cannot be acted on",
	},
	StrayLeft: {
		name: "StrayLeft", step: looks, first: time.Second, last: 5 * time.Minute,
		ends:     "it is deleted",
		sentence: "a child that a webhook made useless could not be deleted",
	},
	Paused: {
		name: "Paused", step: plans, stops: stopsScale, waits: true, atOnce: true, ofSpec: true,
		ends:     "the owner changes",
		sentence: "Spec.Paused is set",
	},
	OwnerDeleted: {
		name: "OwnerDeleted", step: plans, stops: stopsAll, waits: true, atOnce: true,
		ends:     "never",
		sentence: "the owner is being deleted",
	},
	CallsNotSeen: {
		name: "CallsNotSeen", step: plans, stops: stopsScale, waits: true,
		ends:     "the cache shows them",
		sentence: "the cache does not show earlier creations or deletions yet",
	},
	CacheBehind: {
		name: "CacheBehind", step: plans, stops: stopsAll, waits: true, first: 50 * time.Millisecond, last: 2 * time.Second,
		ends:     "the cache has come as far",
		sentence: "the cache may be older than what an earlier process saw",
	},
	ListFailed: {
		name: "ListFailed", step: plans, stops: stopsAll, waits: true, fails: true, first: time.Second, last: 15 * time.Second,
		ends: "a list succeeds", event: FailedList,
		sentence: "the cache is known to be old, and the children could not be listed live",
	},
	ListsBusy: {
		name: "ListsBusy", step: plans, stops: stopsAll, waits: true, first: time.Second, last: time.Second,
		ends: "a list succeeds", event: FailedList,
		sentence: "the cache is known to be old, and too many live lists are under way or held back",
	},
	RelatedFailed: {
		name: "RelatedFailed", step: plans,
		ends: "a list succeeds", event: FailedRelated,
		sentence: "children are ranked without those of related owners",
	},
	OwnerUnread: {
		name: "OwnerUnread", step: looks, stops: StopsDeletions, fails: true, first: time.Second, last: 10 * time.Second,
		ends: "a read succeeds", event: FailedOwner,
		sentence: "the owner could not be read from the server",
	},
	AdoptionUndecided: {
		name: "AdoptionUndecided", step: claims, stops: StopsCreations, fails: true, first: 50 * time.Millisecond, last: time.Minute,
		ends: "the child or the owner changes", event: FailedAdopt,
		sentence: "an adoption failed that may succeed yet: no child is created in that place",
	},
	AdoptionRefused: {
		name: "AdoptionRefused", step: claims, first: time.Minute, last: time.Minute,
		ends:     "the child or the owner changes",
		sentence: "the server does not let the owner adopt a child",
	},
	ReleaseFailed: {
		name: "ReleaseFailed", step: claims, first: time.Second, last: time.Minute,
		ends: "the child or the owner changes", event: FailedRelease,
		sentence: "a child could not be released",
	},
	ReleaseUndone: {
		name: "ReleaseUndone", step: claims, atOnce: true, ofSpec: true,
		ends: "the owner changes", event: FailedRelease,
		sentence: "another controller adopts for this owner what this one releases",
	},
	DeletionInFlight: {
		name: "DeletionInFlight", step: scales, stops: StopsDeletions, waits: true,
		ends:     "a look shows what became of it",
		sentence: "deletions without an answer count as done, so no other children are deleted in their place",
	},
	MustStay: {
		name: "MustStay", step: scales, stops: StopsDeletions, atOnce: true,
		ends:     "a child need not stay any more",
		sentence: "Rules.MustStay keeps children that are too many",
	},
	MissingFirst: {
		name: "MissingFirst", step: scales, stops: StopsDeletions, atOnce: true,
		ends:     "what is missing is there",
		sentence: "children that must go, or are in no wanted slot, stay until what is missing is created and enough are available",
	},
	MaxDeletions: {
		name: "MaxDeletions", step: scales, stops: StopsDeletions, atOnce: true,
		ends:     "the owner or a child changes",
		sentence: "Spec.MaxDeletions allows no more deletions now",
	},
	Burst: {
		name: "Burst", step: scales, stops: stopsScale,
		ends:     "the cache shows what this pass did",
		sentence: "Spec.BurstReplicas allows no more calls in one pass",
	},
	Conflict: {
		name: "Conflict", step: scales, stops: StopsDeletions, waits: true, fails: true, ofSpec: true, first: 50 * time.Millisecond, last: time.Minute,
		ends: "nothing is left to delete, or deletions meet no Conflict", event: DeletionsHeld,
		sentence: "deletions met a Conflict, and had been chosen from an old view",
	},
	ConflictAgain: {
		name: "ConflictAgain", step: scales, stops: StopsDeletions, waits: true, fails: true, ofSpec: true, first: 50 * time.Millisecond, last: time.Minute,
		ends: "it is deleted", event: DeletionsHeld,
		sentence: "the deletion of a child met a Conflict twice in one pass",
	},
	DeletionRetryAfter: {
		name: "DeletionRetryAfter", step: scales, stops: StopsDeletions, waits: true, fails: true, ofSpec: true, last: 5 * time.Minute,
		ends: "the owner changes", event: DeletionsHeld,
		sentence: "the server answered a deletion with Retry-After",
	},
	DeletionFailed: {
		name: "DeletionFailed", step: scales, stops: StopsDeletions, waits: true, fails: true, ofSpec: true, first: time.Second, last: time.Minute,
		ends:     "a deletion succeeds",
		sentence: "the server failed (500) when it was to delete a child",
	},
	LookFailed: {
		name: "LookFailed", step: scales, first: time.Second, last: time.Minute,
		ends: "a look succeeds", event: FailedLook,
		sentence: "a child could not be read from the server, and an earlier creation or deletion of it had no answer",
	},
	CreationInFlight: {
		name: "CreationInFlight", step: scales, stops: StopsCreations, waits: true,
		ends:     "a look shows what became of it",
		sentence: "creations without an answer hold their places, so no other children are created in them",
	},
	Author: {
		name: "Author", step: scales, stops: stopsScale, fails: true, atOnce: true,
		ends:     "Kind.Prepare says so",
		sentence: "Kind.Prepare left out what was planned, or failed",
	},
	LastRoundEnded: {
		name: "LastRoundEnded", step: scales, stops: StopsCreations, ofSpec: true, first: 10 * time.Second, last: 5 * time.Minute,
		ends: "the owner changes", event: CreationsHeld,
		sentence: "children of the last round ended soon after they were created",
	},
	NamespaceGoing: {
		name: "NamespaceGoing", step: scales, stops: StopsCreations, waits: true, fails: true, ofSpec: true, first: time.Minute, last: 5 * time.Minute,
		ends:     "a creation succeeds",
		sentence: "the namespace is being deleted or is gone",
	},
	QuotaFull: {
		name: "QuotaFull", step: scales, stops: StopsCreations, waits: true, fails: true, ofSpec: true, first: time.Second, last: time.Minute,
		ends:     "a child of the owner is gone, or nothing is left to create",
		sentence: "a quota is full",
	},
	RetryAfter: {
		name: "RetryAfter", step: scales, stops: StopsCreations, waits: true, fails: true, ofSpec: true, last: 5 * time.Minute,
		ends:     "a creation succeeds",
		sentence: "the server answered with Retry-After",
	},
	CreationFailed: {
		name: "CreationFailed", step: scales, stops: StopsCreations, waits: true, fails: true, ofSpec: true, first: time.Second, last: time.Minute,
		ends:     "a creation succeeds",
		sentence: "the server failed (500) when it was to create a child",
	},
	ChangedByWebhook: {
		name: "ChangedByWebhook", step: scales, stops: StopsCreations, waits: true, fails: true, ofSpec: true, first: time.Second, last: 5 * time.Minute,
		ends:     "creations succeed",
		sentence: "a new child came back with other labels or another controller",
	},
	NameTaken: {
		name: "NameTaken", step: scales, stops: StopsCreations, ofSpec: true, first: time.Second, last: time.Minute,
		ends:     "the name is free",
		sentence: "another object has the name of a slot",
	},
	StatusForbidden: {
		name: "StatusForbidden", step: scales, ofSpec: true,
		ends: "a pass writes the status, or need not", event: FailedStatus,
		sentence: "the server does not let the Controller write the owner's status",
	},
}

// String returns the name of the reason, which is also its value in metrics.
func (r Reason) String() string { return r.row().name }

// Sentence says in plain words what the reason means.
func (r Reason) Sentence() string { return r.row().sentence }

func (r Reason) row() row {
	if r >= reasons {
		r = 0
	}
	return rows[r]
}

// gate notes that the pass holds something back, and asks for a pass when wait is over, if it
// is not 0. If the error is one of the pass, that wait takes the place of the rate limiter. What it
// returns may be changed until the next gate.
func (p *pass[O, C]) gate(reason Reason, object string, wait time.Duration, err error) *Gate {
	row := reason.row()
	g := Gate{Reason: reason, Stops: row.stops, Since: p.Now, Object: object, Err: err, waits: row.waits}
	if wait > 0 {
		g.Until = p.opts.Now().Add(wait)
		p.comeBack(wait)
	}
	if err != nil && row.fails {
		p.retryIn(wait)
	}
	if was := gateOf(p.standing, reason, object); was != nil {
		g.Since = was.Since
	}
	i, met := slices.BinarySearchFunc(p.Gates, g, func(a, b Gate) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Object, b.Object))
	})
	if !met {
		p.Gates = slices.Insert(p.Gates, i, g)
	}
	p.Gates[i] = g
	return &p.Gates[i]
}

// held notes the gate of a hold that lasts, and reports whether there is one. Its key is what
// it holds back: a namespace, the name of a slot or the UID of a child.
func (p *pass[O, C]) held(reason Reason, key, object string, children int) bool {
	h := p.state.holds[holdKey{reason, key}]
	if h == nil {
		return false
	}
	wait := h.remaining(p.Now, children)
	if wait <= 0 {
		return false
	}
	g := p.gate(reason, object, wait, nil)
	g.Err, g.Earlier = h.why, true
	if h.Since.Before(g.Since) {
		g.Since = h.Since
	}
	return true
}

// tell sends the event of a reason in the first pass that meets its gates, once. It must be called before gate.
func (p *pass[O, C]) tell(reason Reason, message string) {
	if !slices.ContainsFunc(p.standing, func(g Gate) bool { return g.Reason == reason }) &&
		!slices.ContainsFunc(p.Gates, func(g Gate) bool { return g.Reason == reason && g.Err != nil }) {
		p.event(corev1.EventTypeWarning, reason.row().event, message)
	}
}

// comeBack asks for another pass after d, at once if that is over already; the earliest wish
// wins. It is for times that rules name: what holds something back is a gate.
func (p *pass[O, C]) comeBack(d time.Duration) { p.RequeueAfter = earliest(p.RequeueAfter, max(d, 1)) }

// retryIn says how long the caller waits if the pass ends in an error: the longest of what the
// server and the holds say. If nobody says anything, the caller's rate limiter does.
func (p *pass[O, C]) retryIn(d time.Duration) { p.retryAfter = max(p.retryAfter, d) }

// retryOnly says so in place of what was said before: 0 leaves it to the rate limiter.
func (p *pass[O, C]) retryOnly(d time.Duration) { p.retryAfter = d }

// requeue says when the next pass is to come. After an error only the server or a hold says
// that: the caller's rate limiter does otherwise.
func (p *pass[O, C]) requeue(failed bool) {
	if failed {
		p.RequeueAfter = p.retryAfter
		return
	}
	if p.state == nil {
		return
	}
	if again := p.state.known.Again(p.opts.Now()); again > 0 {
		p.comeBack(again)
	}
}

// blocks are the gates of what keeps a plan from creating and deleting anything. A stale view has none:
// a list follows, or its own gate.
var blocks = map[replicas.Reason]Reason{
	replicas.ExpectationsPending: CallsNotSeen, replicas.OwnerDeleted: OwnerDeleted, replicas.Paused: Paused,
}

func gateOf(gates []Gate, reason Reason, object string) *Gate {
	i := slices.IndexFunc(gates, func(g Gate) bool { return g.Reason == reason && g.Object == object })
	if i < 0 {
		return nil
	}
	return &gates[i]
}

// holdIsTold is how long a hold is when an event tells of it: a shorter one is over before
// anybody looks.
const holdIsTold = time.Second

// A hold keeps calls back for a while. The zero hold is none.
type hold struct {
	backoff.Hold // since the calls that led to it had ended
	// At is how many children there were when the quota was full: fewer end the
	// hold. 0 if it is no quota that holds.
	At  int
	why error // what the server said
}

// grow makes a hold last twice as long, within the bounds of the reason.
func (r Reason) grow(h *backoff.Hold, now time.Time) { h.Double(now, r.row().first, r.row().last) }

// remaining is how long calls must still wait, with so many children there.
func (h *hold) remaining(now time.Time, children int) time.Duration {
	if children < h.At {
		return 0
	}
	return h.Remaining(now)
}

// holds are those of an owner. One of an earlier time stays, so that the next one is longer,
// until what it is for succeeds.
type holds map[holdKey]*hold

// A holdKey is what is held back, and why: the key is a namespace, the name of a slot, the
// UID of a child, or "".
type holdKey struct {
	Reason Reason
	Key    string
}

// of returns a hold, to be set.
func (h *holds) of(reason Reason, key string) *hold {
	if *h == nil {
		*h = holds{}
	}
	k := holdKey{reason, key}
	if (*h)[k] == nil {
		(*h)[k] = new(hold)
	}
	return (*h)[k]
}

// end ends holds of something.
func (h holds) end(key string, why ...Reason) {
	for _, reason := range why {
		delete(h, holdKey{reason, key})
	}
}

// endAll ends all holds for a reason.
func (h holds) endAll(why Reason) {
	maps.DeleteFunc(h, func(k holdKey, _ *hold) bool { return k.Reason == why })
}

// earliest is the shorter of two delays, of which 0 is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// A GateChange is what became of a gate of an owner.
type GateChange struct {
	Gate
	// Ended says that it stops nothing any more. Otherwise it has lasted for a second, or
	// will, or has another error than when it was told last.
	Ended bool
}

// Log returns the change as a message, and as keys and values, for a structured log: reason,
// why, since, and stops, object, until and err, if they are not empty.
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

// gateIsTold is how long a gate must last before a log tells of it.
const gateIsTold = time.Second

// A gateBook keeps the gates that owners have met last. The zero value is ready to use.
type gateBook struct {
	of     map[types.NamespacedName][]Gate
	lasted durations // of those that have ended
}

// note takes the gates of a pass that came so far. Those of later steps stay as they were.
func (b *gateBook) note(owner types.NamespacedName, is []Gate, came step, now time.Time) (changes []GateChange) {
	var stand []Gate
	for i := range is {
		g := is[i]
		was := gateOf(b.of[owner], g.Reason, g.Object)
		g.told = was != nil && was.told
		changed := g.told && (withoutNames(g.Err) != withoutNames(was.Err) || g.Stops != was.Stops)
		if !g.told && g.isTold(now) || changed {
			g.told = true
			changes = append(changes, GateChange{Gate: g})
		}
		stand = append(stand, g)
	}
	for _, was := range b.of[owner] {
		switch {
		case gateOf(is, was.Reason, was.Object) != nil:
		case was.Reason.row().step > came:
			stand = append(stand, was)
		default:
			b.lasted.add(now.Sub(was.Since))
			if was.told {
				changes = append(changes, GateChange{Gate: was, Ended: true})
			}
		}
	}
	if len(stand) == 0 {
		delete(b.of, owner)
		return changes
	}
	if b.of == nil {
		b.of = map[types.NamespacedName][]Gate{}
	}
	b.of[owner] = stand
	return changes
}

// isTold reports whether a gate is worth a line in a log: because it has lasted for a second, or
// because nothing but somebody's doing, or a hold of a second, ends it.
func (g *Gate) isTold(now time.Time) bool {
	return now.Sub(g.Since) >= gateIsTold || g.Reason.row().atOnce || g.Reason.row().first > 0 && g.Until.Sub(g.Since) >= gateIsTold
}

func (b *gateBook) samples() []Sample {
	var owners [reasons]int
	for _, gates := range b.of {
		for r := range owners {
			owners[r] += one(slices.ContainsFunc(gates, func(g Gate) bool { return g.Reason == Reason(r) }))
		}
	}
	samples := []Sample{b.lasted.sample("gate_duration_seconds", "Time that something held an owner back.")}
	for r := Reason(1); r < reasons; r++ {
		samples = append(samples, Sample{
			Name: "gated_owners", Help: "Owners that something holds back, by the reason.", Type: Gauge, Reason: r.String(), Value: float64(owners[r]),
		})
	}
	return samples
}
