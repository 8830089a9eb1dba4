// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/backoff"
	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas"
)

// A Gate is one reason why a pass held something back. Pass.Gates lists all of them, so a pass without gates held
// nothing back. But a refused creation that holds nothing else back is only an error of the pass and an event.
//
// Administrators see a gate that lasts for a second in the log, where the modules replicas/clientgo and
// replicas/controllerruntime write "Held back". They also see gates in events such as DeletionsHeld, and in the
// metric replicakit_gated_owners, which counts the owners by reason. The program replicakit-controller shows under
// /debug/passes the last five passes of each owner that did something, failed, or were held back by more than a short
// wait for the cache, in the format of Pass.String. Without that program, "kubectl scaledown --why-not" tells what would
// hold a pass back now. Kind.Observe finds the gates in Pass.Gates, and Kind.Status finds them in Outcome.Gates.
type Gate struct {
	Reason GateReason
	// Stops lists the parts of the pass that the gate stopped. It is 0 if the gate only reports a fact, such as a
	// release that the server refused.
	Stops Stops
	// Since is the time at which the gate began: the start of the first of the passes in a row that met it, or the end
	// of the API calls that led to it.
	Since time.Time
	// Until is the time at which the Controller tries again. It is zero if the Controller tries again when the owner or
	// its children change, or when the functions of the Kind return another result.
	Until time.Time
	// Object is the name of the child or namespace that the gate is about, or "" if that is the owner or several
	// children. But a gate OwnWriteNotSeen has the resource whose cache is behind, such as "replicasets.apps".
	Object string
	// Err is the error that led to the gate, or nil if there was none.
	Err error

	// Earlier is true if an earlier pass had postponed the work, so that this pass did not try it.
	Earlier bool

	// Lasting is true if the gate has lasted for a second, is expected to last that long, or lasts until someone
	// acts. It is set at the end of a pass. Write a line to the log when such a gate begins and when it ends.
	Lasting bool

	waits bool // the gate keeps the pass from changing the number of children
}

// String describes the gate in one line.
func (g Gate) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%v", g.Reason)
	if g.Object != "" {
		fmt.Fprintf(&text, " of %s", g.Object)
	}
	if g.Stops != 0 {
		fmt.Fprintf(&text, " stops %v", g.Stops)
	}
	const milliseconds = "2006-01-02T15:04:05.999Z07:00"
	fmt.Fprintf(&text, " since %s", g.Since.UTC().Format(milliseconds))
	if !g.Until.IsZero() {
		fmt.Fprintf(&text, " until %s", g.Until.UTC().Format(milliseconds))
	}
	fmt.Fprintf(&text, ": %s", g.Reason.Sentence())
	if g.Err != nil {
		fmt.Fprintf(&text, " (%s)", oneLine(g.Err))
	}
	return text.String()
}

// oneLine returns the message of an error as one line, because that of a joined error has several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Stops is a set of parts of a pass. A gate stops these parts for all children or only for some of them.
type Stops uint8

// The parts of a pass that a gate can stop.
const (
	StopsClaims Stops = 1 << iota
	StopsCreations
	StopsDeletions
	StopsUpdates

	stopsTaking = StopsDeletions | StopsUpdates
	stopsScale  = StopsCreations | stopsTaking
	stopsAll    = StopsClaims | stopsScale
)

// String lists the parts, for example "claims, creations, deletions".
func (s Stops) String() string {
	var parts []string
	for i, part := range []string{"claims", "creations", "deletions", "updates"} {
		if s&(1<<i) != 0 {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// A GateReason says why a pass held something back. The zero GateReason means no reason.
type GateReason uint8

// These are the reasons. The gates of a pass are in this order: first what an author or a user has decided, then waits
// for what is not known and holds after failures, and last the limits of the Spec. A call without an answer comes behind
// the failures that may have left it so. So the first gate is the cause to look at. While Kind.Prepare drains a node, for
// example, the rest of the plan may also exceed BurstReplicas, but a larger BurstReplicas would delete nothing.
const (
	PassPanicked GateReason = 1 + iota
	SpecRefused
	Paused
	OwnerDeleted
	HeldByPrepare
	MustStay
	ReadyUnset
	StatusFaulty

	OwnWriteNotSeen
	OwnerStale
	OwnerGone
	StrayLeft
	CacheFailed
	CallsNotSeen
	CacheBehind
	ListFailed
	ListsBusy
	RelatedFailed
	OwnerUnread
	InputsStale
	AdoptionUndecided
	AdoptionRefused
	ReleaseFailed
	Conflict
	DeletionRetryAfter
	DeletionFailed
	DeletionRefused
	DeletionInFlight
	UpdateFailed
	UpdateInFlight
	LookFailed
	LastRoundEnded
	NamespaceGoing
	QuotaFull
	RetryAfter
	CreationFailed
	ChangedByWebhook
	CreationInFlight
	NameTaken
	StatusForbidden
	StatusUndone

	MissingFirst
	MaxDeletions
	BurstLimit

	reasons // the number of reasons, including the zero GateReason
)

// A step is a part of a pass. A pass that ends before a step leaves the standing gates of that step as they are.
type step uint8

const (
	looks step = iota
	plans
	lists // part of the plan, which a pass does not finish without the live list that it needs
	claims
	scales
)

// A row contains the properties that all gates with the same reason share.
type row struct {
	name     string
	step     step
	stops    Stops
	waits    bool // the gate keeps the pass from changing the number of children
	isError  bool // the gate's error is an error of the pass, and the gate's delay replaces the delay of the rate limiter
	atOnce   bool // the gate is logged immediately, because it lasts until someone acts
	ofSpec   bool // a new generation of the owner ends the hold
	shortest time.Duration
	longest  time.Duration // shortest <= the length of a hold <= longest, and it doubles in between
	ends     string        // what ends the hold early, in words; in code: ofSpec, nothingLeft, holds.end, forgetClaims, takenSlots
	event    string        // the reason of the event; "" if there is none
	sentence string
}

// The table in docs/pass.md is generated from these rows. A child that a pass counted as surplus was not deleted because
// of (a) a row that stops deletions, (b) NameTaken, if two children share a slot, (c) UpdateFailed, if it would get a
// mark, or (d) an error without a gate in Pass.Err: the cache failed to return the owner, or returned nil for a child,
// Kind.ClusterScoped is wrong, the context ended, or the server was restored. No gate tells that no pass ran, or that the cache still shows the former owner or fewer
// children, so compare the numbers in Pass.String with the server.
var rows = [reasons]row{
	PassPanicked: {
		name: "PassPanicked", step: looks, stops: stopsAll, waits: true, atOnce: true,
		ends: "a pass does not panic", event: Panicked,
		sentence: "a function of the Kind or the client panicked",
	},
	SpecRefused: {
		name: "SpecRefused", step: looks, stops: stopsAll, atOnce: true, ofSpec: true,
		ends: "the owner changes", event: "its own",
		sentence: "the owner's spec cannot be acted on",
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
	HeldByPrepare: {
		name: "HeldByPrepare", step: scales, stops: stopsScale, isError: true, atOnce: true,
		ends:     "Kind.Prepare allows the calls",
		sentence: "Kind.Prepare removed calls from the plan, or failed",
	},
	MustStay: {
		name: "MustStay", step: scales, stops: StopsDeletions | StopsUpdates, atOnce: true,
		ends:     "a child no longer has to stay",
		sentence: "Rules.MustStay keeps children that are surplus, or must go, be discarded or be changed",
	},
	ReadyUnset: {
		name: "ReadyUnset", step: scales, atOnce: true,
		ends:     "a rule is set, or no child is older than a minute",
		sentence: "neither Rules.Ready nor Rules.Available is set, so none of these children, which are not pods, is ever ready",
	},
	StatusFaulty: {
		name: "StatusFaulty", step: scales, atOnce: true,
		ends: "Kind.Status sets the status alone, and the same one for the same outcome", event: FailedStatus,
		sentence: "Kind.Status changes more than the status, or sets another one each time",
	},
	OwnWriteNotSeen: {
		name: "OwnWriteNotSeen", step: looks, stops: stopsAll, waits: true,
		ends:     "the cache shows it",
		sentence: "the cache does not show an earlier write of the Controller yet",
	},
	OwnerStale: {
		name: "OwnerStale", step: looks, stops: stopsAll, waits: true, isError: true, shortest: 50 * time.Millisecond, longest: time.Second,
		ends:     "the cache shows the newer one, or a read confirms the cached one",
		sentence: "the cache has an older owner than the server",
	},
	OwnerGone: {
		name: "OwnerGone", step: looks, stops: stopsAll, waits: true, isError: true, shortest: 50 * time.Millisecond, longest: 5 * time.Minute,
		ends:     "the cache shows that too, or a read finds it",
		sentence: "the server does not have the owner that the cache has",
	},
	StrayLeft: {
		name: "StrayLeft", step: looks, shortest: time.Second, longest: 5 * time.Minute,
		ends:     "it is deleted",
		sentence: "a new child that a webhook took from the owner could not be deleted",
	},
	CacheFailed: {
		name: "CacheFailed", step: plans, stops: stopsAll, waits: true, isError: true,
		ends:     "it does",
		sentence: "the cache did not list the children",
	},
	CallsNotSeen: {
		name: "CallsNotSeen", step: lists, stops: stopsScale, waits: true,
		ends:     "the cache shows them",
		sentence: "the cache does not show earlier creations or deletions yet",
	},
	CacheBehind: {
		name: "CacheBehind", step: plans, stops: stopsAll, waits: true, shortest: 50 * time.Millisecond, longest: 2 * time.Second,
		ends:     "the cache reaches the server's version",
		sentence: "the cache may be older than what an earlier process saw",
	},
	ListFailed: {
		name: "ListFailed", step: lists, stops: stopsAll, waits: true, isError: true, ofSpec: true, shortest: time.Second, longest: 15 * time.Second,
		ends: "a list succeeds", event: FailedList,
		sentence: "the cache is old, and the children could not be listed live",
	},
	ListsBusy: {
		name: "ListsBusy", step: lists, stops: stopsAll, waits: true, shortest: time.Second, longest: time.Second,
		ends: "a list succeeds", event: FailedList,
		sentence: "the cache is old, and two live lists of other owners are under way",
	},
	RelatedFailed: {
		name: "RelatedFailed", step: plans,
		ends: "a list succeeds", event: FailedRelated,
		sentence: "children are ranked without those of related owners",
	},
	OwnerUnread: {
		name: "OwnerUnread", step: looks, stops: stopsScale, waits: true, isError: true, ofSpec: true, shortest: time.Second, longest: 5 * time.Minute,
		ends: "a read succeeds", event: FailedOwner,
		sentence: "the owner could not be read from the server",
	},
	InputsStale: {
		name: "InputsStale", step: scales, stops: stopsTaking, waits: true, ofSpec: true, shortest: 50 * time.Millisecond, longest: time.Minute,
		ends:     "the plans agree",
		sentence: "Kind.SpecLive deletes or changes other children than Kind.Spec",
	},
	AdoptionUndecided: {
		name: "AdoptionUndecided", step: claims, stops: StopsCreations, isError: true, ofSpec: true, shortest: 50 * time.Millisecond, longest: time.Minute,
		ends: "the child changes", event: FailedAdopt,
		sentence: "an adoption failed but may still succeed, so no child is created in its place",
	},
	AdoptionRefused: {
		name: "AdoptionRefused", step: claims, ofSpec: true, shortest: time.Minute, longest: time.Minute,
		ends:     "the child changes",
		sentence: "the server does not let the owner adopt a child",
	},
	ReleaseFailed: {
		name: "ReleaseFailed", step: claims, ofSpec: true, shortest: time.Second, longest: time.Minute,
		ends: "the child changes, if its release failed", event: FailedRelease,
		sentence: "a child could not be released, or came back after its release",
	},
	Conflict: {
		name: "Conflict", step: scales, stops: StopsDeletions, waits: true, isError: true, ofSpec: true, shortest: 50 * time.Millisecond, longest: time.Minute,
		ends: "the child is gone or, before a second, changes", event: DeletionsHeld,
		sentence: "a deletion met a Conflict, because the child has changed or a webhook refuses it",
	},
	DeletionRetryAfter: {
		name: "DeletionRetryAfter", step: scales, stops: StopsDeletions, waits: true, isError: true, ofSpec: true, longest: MaxServerDelay,
		ends: "the owner changes", event: DeletionsHeld,
		sentence: "the server answered a deletion with Retry-After",
	},
	DeletionFailed: {
		name: "DeletionFailed", step: scales, stops: StopsDeletions, waits: true, isError: true, ofSpec: true, shortest: time.Second, longest: time.Minute,
		ends:     "a deletion succeeds",
		sentence: "the server failed (500) while deleting a child",
	},
	DeletionRefused: {
		name: "DeletionRefused", step: scales, stops: StopsDeletions, isError: true,
		ends:     "it is deleted, or may stay",
		sentence: "the server refuses to delete a child, or does not answer",
	},
	DeletionInFlight: {
		name: "DeletionInFlight", step: scales, stops: StopsDeletions, waits: true,
		ends:     "their effect is known",
		sentence: "deletions without an answer count as done",
	},
	UpdateFailed: {
		name: "UpdateFailed", step: scales, stops: StopsUpdates, isError: true, ofSpec: true, shortest: 50 * time.Millisecond, longest: 5 * time.Minute,
		ends: "its change succeeds or, after a Conflict, it changes", event: FailedUpdate,
		sentence: "the server refused or undid the change of a child, or answered with a Conflict, a 500 or Retry-After",
	},
	UpdateInFlight: {
		name: "UpdateInFlight", step: scales, stops: StopsUpdates,
		ends:     "a read shows its effect",
		sentence: "a child whose change had no answer counts as unavailable",
	},
	LookFailed: {
		name: "LookFailed", step: scales, shortest: time.Second, longest: time.Minute,
		ends: "a read succeeds", event: FailedLook,
		sentence: "a child whose creation or deletion had no answer could not be read",
	},
	LastRoundEnded: {
		name: "LastRoundEnded", step: scales, stops: StopsCreations, ofSpec: true, shortest: 10 * time.Second, longest: 5 * time.Minute,
		ends: "the owner changes", event: CreationsHeld,
		sentence: "children of the last round ended soon after they were created",
	},
	NamespaceGoing: {
		name: "NamespaceGoing", step: scales, stops: StopsCreations, waits: true, isError: true, ofSpec: true, shortest: time.Minute, longest: 5 * time.Minute,
		ends:     "a creation succeeds",
		sentence: "the namespace is being deleted or is gone",
	},
	QuotaFull: {
		name: "QuotaFull", step: scales, stops: StopsCreations, waits: true, isError: true, ofSpec: true, shortest: time.Second, longest: time.Minute,
		ends:     "a child of the owner is gone, or nothing is left to create",
		sentence: "a quota is full",
	},
	RetryAfter: {
		name: "RetryAfter", step: scales, stops: StopsCreations, waits: true, isError: true, ofSpec: true, longest: MaxServerDelay,
		ends:     "a creation succeeds",
		sentence: "the server answered with Retry-After",
	},
	CreationFailed: {
		name: "CreationFailed", step: scales, stops: StopsCreations, waits: true, isError: true, ofSpec: true, shortest: time.Second, longest: time.Minute,
		ends:     "a creation succeeds",
		sentence: "the server failed (500) while creating a child",
	},
	ChangedByWebhook: {
		name: "ChangedByWebhook", step: scales, stops: StopsCreations, waits: true, isError: true, ofSpec: true, shortest: time.Second, longest: 5 * time.Minute,
		ends:     "creations succeed",
		sentence: "the server returned a new child with other labels or another controller",
	},
	CreationInFlight: {
		name: "CreationInFlight", step: scales, stops: StopsCreations, waits: true, ofSpec: true, shortest: time.Second, longest: time.Minute,
		ends:     "its effect is known",
		sentence: "a creation without an answer counts as done, and is looked for or sent again after a delay",
	},
	NameTaken: {
		name: "NameTaken", step: scales, stops: StopsCreations, ofSpec: true, shortest: time.Second, longest: time.Minute,
		ends:     "the name is free",
		sentence: "another object, or a child that has ended, has the name of a slot",
	},
	StatusForbidden: {
		name: "StatusForbidden", step: scales, isError: true, ofSpec: true, shortest: 10 * time.Second, longest: 10 * time.Second,
		ends: "a pass writes it, or need not", event: FailedStatus,
		sentence: "the server does not let the Controller write the owner's status",
	},
	StatusUndone: {
		name: "StatusUndone", step: scales, shortest: time.Second, longest: time.Hour,
		ends:     "the status changes",
		sentence: "the server or another client does not keep the status that was written",
	},
	MissingFirst: {
		name: "MissingFirst", step: scales, stops: stopsTaking, atOnce: true,
		ends:     "the missing children exist",
		sentence: "children that must go or be changed stay until no child is missing and enough are available",
	},
	MaxDeletions: {
		name: "MaxDeletions", step: scales, stops: StopsDeletions, atOnce: true,
		ends:     "the owner or a child changes",
		sentence: "Spec.MaxDeletions allows no more deletions now",
	},
	BurstLimit: {
		name: "BurstLimit", step: scales, stops: stopsScale,
		ends:     "the cache shows what this pass did",
		sentence: "Spec.BurstReplicas allows no more calls in one pass",
	},
}

// String returns the name of the reason, which is also its value in metrics.
func (r GateReason) String() string { return r.row().name }

// Sentence says in plain words what the reason means.
func (r GateReason) Sentence() string { return r.row().sentence }

func (r GateReason) row() row {
	if r >= reasons {
		r = 0
	}
	return rows[r]
}

// gate records that the pass holds something back, and requests another pass after a positive wait. The caller may
// modify the returned Gate until gate is called again.
func (p *pass[O, C]) gate(reason GateReason, object string, wait time.Duration, err error) *Gate {
	row := reason.row()
	g := Gate{Reason: reason, Stops: row.stops, Since: p.Now, Object: object, Err: err, waits: row.waits}
	if wait > 0 {
		g.Until = p.opts.Now().Add(wait)
	}
	if before := gateOf(p.Standing, reason, object); before != nil {
		g.Since = before.Since
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

// held reports whether the hold with this reason and key still lasts for a version (see hold), and then records a gate.
func (p *pass[O, C]) held(reason GateReason, key, object, version string) bool {
	h := p.state.holds[holdKey{reason, key}]
	if g := gateOf(p.Gates, reason, object); g != nil && g.Err != nil && !g.Earlier {
		return true // this pass has begun the hold, and its clock stands before that
	}
	wait := h.remaining(p.Now, version)
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

// sendEventOnce sends the event of a reason, unless a gate of this reason stands already. Call it before gate.
func (p *pass[O, C]) sendEventOnce(reason GateReason, message string) {
	if !slices.ContainsFunc(p.Standing, func(g Gate) bool { return g.Reason == reason }) &&
		!slices.ContainsFunc(p.Gates, func(g Gate) bool { return g.Reason == reason && g.Err != nil }) {
		p.event(corev1.EventTypeWarning, reason.row().event, message)
	}
}

// requeueAfter requests the next pass after d, or at once if d is not positive. The shortest delay counts. Gates need
// no call of it, because conclude makes them.
func (p *pass[O, C]) requeueAfter(d time.Duration) {
	p.RequeueAfter = earliest(p.RequeueAfter, max(d, 1))
}

// conclude completes the Pass, and finds out when the next one is due.
func (p *pass[O, C]) conclude(err error) {
	p.Err, p.Calls = err, p.calls.inOrder()
	if p.state == nil {
		return
	}
	p.InFlight = len(p.state.ledger.Open())
	// For a refused spec, Sync returns no error, so no rate limiter brings the next pass.
	now, failed, wait := p.opts.Now(), err != nil && !onlyRefused(err), serverDelay(p.errs)
	for _, g := range p.Gates {
		switch in := max(g.Until.Sub(now), 1); {
		case g.Until.IsZero(), g.Reason == CallsNotSeen: // the ledger says when, below
		case !failed:
			p.requeueAfter(in)
		case g.Err == nil || g.Earlier: // the gate is no error of this pass
		case p.StatusErr != nil && len(p.errs) == 1 && g.Reason != StatusForbidden:
			// Only the status write failed. That deletions are held for 50 ms says nothing about it, so the rate limiter
			// decides when it is tried again.
		case g.Reason.row().isError: // a server that asks for five seconds gets them
			wait = max(wait, in)
		default:
			wait = max(wait, serverDelay([]error{g.Err}))
		}
	}
	switch owed := p.state.ledger.RequeueAfter(now); {
	case failed && (wait == 0 || errors.Is(err, ErrRestored)):
		p.RequeueAfter = 0 // nothing but the caller's rate limiter knows when to try again
	case failed:
		p.requeueAfter(wait)
	case owed > 0: // the watch hangs, so no event brings the pass that finds the view too old
		p.requeueAfter(owed)
	}
}

// blocks contains the gate's reason for each replicas.BlockedReason that blocks a plan, except replicas.ViewIsStale,
// after which the pass lists the children live or records another gate.
var blocks = map[replicas.BlockedReason]GateReason{
	replicas.ExpectationsPending: CallsNotSeen, replicas.OwnerDeleted: OwnerDeleted, replicas.Paused: Paused,
}

func gateOf(gates []Gate, reason GateReason, object string) *Gate {
	i := slices.IndexFunc(gates, func(g Gate) bool { return g.Reason == reason && g.Object == object })
	if i < 0 {
		return nil
	}
	return &gates[i]
}

// shortestHoldWithEvent is the minimum length of a hold that is reported in an event. A shorter one would be over
// before a person reads it.
const shortestHoldWithEvent = time.Second

// A hold delays calls for a while, or not at all if it is zero.
type hold struct {
	backoff.Hold // Since is the time when the hold began, after the calls that led to it
	// version is what the hold depends on, and a larger one ends it: of a Conflict the child's resourceVersion, of a full
	// quota how far the owner is below the largest number of children. If it is "", only time ends the hold.
	version string
	first   time.Time // when the call first failed, if that matters
	why     error     // the error that led to the hold
}

// grow doubles the length of a hold: row.shortest <= h.Wait <= row.longest.
func (r GateReason) grow(h *backoff.Hold, now time.Time) {
	h.Double(now, r.row().shortest, r.row().longest)
}

// remaining returns how long the hold still delays calls.
func (h *hold) remaining(now time.Time, version string) time.Duration {
	// Fifty pods change while they are scaled down, and the deletion of web-a met a Conflict. The cache now shows web-a in
	// its newer version, so it need not wait. But a cache that shows an older version ends no hold.
	if h == nil || h.version != "" && version != "" && version != h.version && !resourceversion.Older(version, h.version) {
		return 0
	}
	return h.Remaining(now)
}

// holds contains the holds of one owner. An expired one stays until the delayed calls succeed, so that the next one is
// longer if they fail again.
type holds map[holdKey]*hold

// A holdKey identifies a hold by its reason and by the object that is held back.
type holdKey struct {
	Reason GateReason
	Key    string // a namespace, the name of a slot or child, or ""
}

// getOrAdd returns the hold with this reason and key, for the caller to set, or adds one that delays nothing.
func (h *holds) getOrAdd(reason GateReason, key string) *hold {
	if *h == nil {
		*h = holds{}
	}
	k := holdKey{reason, key}
	if (*h)[k] == nil {
		(*h)[k] = new(hold)
	}
	return (*h)[k]
}

// end removes the holds with the given key and reasons.
func (h holds) end(key string, why ...GateReason) {
	for _, reason := range why {
		delete(h, holdKey{reason, key})
	}
}

// earliest returns the shorter of two delays, where 0 means that none was set.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// shortestGateInLog is how long a gate must last before it is logged.
const shortestGateInLog = time.Second

// stand sets p.Standing to the gates that are in effect after the pass.
func (p *pass[O, C]) stand() {
	for i := range p.Gates {
		g := &p.Gates[i]
		before := gateOf(p.Standing, g.Reason, g.Object)
		g.Lasting = g.lasts(p.Now) || before != nil && before.Lasting
	}
	standing := slices.Clone(p.Gates)
	for _, g := range p.Standing {
		// A quota is full, and then the cache lists no pods. The pass ended before its creations, so it cannot know whether
		// the quota is still full: the log gets neither an end of QuotaFull now nor a beginning in the next pass.
		if gateOf(p.Gates, g.Reason, g.Object) == nil && (g.Reason.row().step > p.step || g.Lasting && p.goesOn(g.Reason)) {
			standing = append(standing, g)
		}
	}
	p.Standing = standing
}

// goesOn reports whether a gate that this pass did not meet will soon be met again, so that it did not end.
func (p *pass[O, C]) goesOn(reason GateReason) bool {
	switch reason {
	case CallsNotSeen:
		// The watch was a minute late, and a pod ended each minute. A pass that saw the last creation made the next
		// one, so the gate ended and soon began again, which was logged forty times in twenty minutes.
		return len(p.Created)+len(p.Deleted) > 0
	case OwnWriteNotSeen, OwnerStale: // each ten seconds one pass goes on with the owner from the server, and all others wait
		return p.cacheIsOld
	}
	return false
}

// lasts reports whether a gate has lasted for long enough to be logged, or can be expected to.
func (g *Gate) lasts(now time.Time) bool {
	row := g.Reason.row()
	return now.Sub(g.Since) >= shortestGateInLog || row.atOnce || row.shortest > 0 && g.Until.Sub(g.Since) >= shortestGateInLog
}
