// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

// sync makes a pass, and reports it to the metrics and to Kind.Observe.
func (r *reconciler[O, C]) sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error) {
	if err := r.restored(owner); err != nil {
		return 0, err
	}
	if !r.owners.enter(owner) {
		return 0, fmt.Errorf("controller: %s %q: a pass for this owner is already under way: do not call Sync twice at once for one owner", r.kind.Owner.Kind, owner)
	}
	defer r.owners.exit(owner)
	p := &pass[O, C]{reconciler: r, inTerm: r.term.number(), standing: r.measures.standing(owner)}
	p.Name, p.Now = owner, r.opts.Now()
	defer p.tellPanic()
	p.run(ctx)
	err := p.err()
	if restored := r.restored(owner); restored != nil {
		err = restored
		p.retryOnly(0)
		p.tellRestored(restored)
	}
	p.conclude(err)
	p.Took = r.opts.Now().Sub(p.Now)
	if len(p.Gates)+len(p.standing) > 0 && ctx.Err() == nil { // a pass that was cut short shows nothing new about gates
		r.measures.noteGates(&p.Pass, p.step)
	}
	r.measures.add(&p.Pass)
	if r.kind.Observe != nil {
		r.kind.Observe(ctx, p.Pass)
	}
	if onlyRefused(p.Err) {
		return p.RequeueAfter, nil
	}
	return p.RequeueAfter, p.Err
}

// A pass is one call of Sync.
type pass[O, C Object] struct {
	*reconciler[O, C]
	Pass[O, C] // what Kind.Observe gets
	calls      calls
	inTerm     int           // the term in which the pass began
	standing   []Gate        // the gates of earlier passes
	step       step          // how far the pass has come
	errs       []error       // what went wrong
	retryAfter time.Duration // how long the server or a hold delays the next pass after an error

	// wants sets these.
	key    expectations.Key
	cached O // the owner from the cache; Owner differs if the pass uses a read
	state  *memory[C]
	spec   replicas.Spec[C]
	rules  status.Rules[C]
	// ownerRead says that a read in this pass has shown that the server's owner wants the same as the
	// pass. The field ownerOld says that a call has shown that the server's owner is gone or wants
	// something else.
	ownerRead, ownerOld bool
	remembers           bool // whether the pass records when children become ready, because their status does not say so

	// plan sets these.
	start    ledger.Moment // when the pass began to read the cache
	snapshot ledger.Snapshot[C]
	view     view[C]
}

// run shows all steps of a pass.
func (p *pass[O, C]) run(ctx context.Context) {
	if !p.wants(ctx) { // the owner as it is now, and what it wants
		return
	}
	defer p.state.known.Done()
	p.step = plans
	plan, ok := p.plan(ctx) // which children exist, and what to do about them
	if ok {
		p.step = claims
		var scale replicas.Scale[C]
		if scale, ok = p.claim(ctx, plan); ok { // adopts and releases, and returns the scale for the children that the owner then has
			p.step = scales
			p.scale(ctx, scale)
		}
	}
	if p.Observed && gateOf(p.Gates, CacheBehind, "") == nil {
		p.report(ctx) // writes the status, even after an error
	}
}

// scale creates missing children, or deletes those that are too many, and discards those that have
// ended.
func (p *pass[O, C]) scale(ctx context.Context, planned replicas.Scale[C]) {
	if p.Waiting() && planned.IsZero() { // the pass does not know what is missing or too many
		return
	}
	p.limits(planned)
	if planned.IsZero() {
		p.nothingToDo(ctx, planned)
	} else if ok := p.carryOut(ctx, planned, planned); ok && p.mayFillSlots(ctx, planned) {
		if missing := p.missingSlots(); !missing.IsZero() {
			all := missing
			all.Delete, all.Discard = planned.Delete, some(planned.Discard, p.isThere) // the first round has deleted no active child
			p.carryOut(ctx, all, missing)
		}
	}
	p.state.active = len(p.Active) + len(p.Created) - len(p.activeOf(p.Deleted))
}

// nothingToDo is the rest of a pass whose plan neither creates nor deletes.
func (p *pass[O, C]) nothingToDo(ctx context.Context, planned replicas.Scale[C]) {
	if p.kind.Prepare != nil && !p.ownerOld {
		_, err := p.author(ctx, p.newStep(p.Active, p.Terminating), planned, planned) // Prepare may undo what it began
		p.fails(err)
	}
	if held := p.lookForLost(ctx, planned); !held {
		p.state.nothingLeft(p.Now)
	}
}

// carryOut makes the calls of a scale, which is a part of the plan. Each step may remove calls from the
// scale. If a step fails before the calls, carryOut returns false.
func (p *pass[O, C]) carryOut(ctx context.Context, planned, scale replicas.Scale[C]) (ok bool) {
	scale, newborns := p.notHeld(scale) // leaves out what earlier passes have put off
	held := scale.IsZero()
	if held && (p.ownerOld || deletes(planned) || p.kind.Prepare == nil) {
		return true
	}
	scale, ok = p.ownerAgrees(ctx, planned, scale) // before Prepare, which may already act on the children to delete
	if ok && p.kind.Prepare != nil {
		var err error
		scale, err = p.author(ctx, p.newStep(p.Active, p.Terminating), planned, scale)
		p.fails(err)
		ok = err == nil
	}
	if held {
		return ok
	}
	defer p.tellUntried(scale)
	p.holdTaken(ctx, scale)
	scale = p.within(p.Active, scale) // no call ever exceeds the room
	p.lookForLost(ctx, scale)
	if scale.IsZero() {
		return ok
	}
	p.setOut(scale)
	p.tellScaling(ctx, p.Active, scale)
	if scale.Create > 0 {
		p.create(ctx, scale, newborns)
	}
	if victims := slices.Concat(scale.Delete, scale.Discard); len(victims) > 0 {
		p.delete(ctx, planned, victims)
	}
	return true
}

// conclude completes the Pass. A refused spec is no error for the caller of Sync, so requeues for other
// reasons are kept.
func (p *pass[O, C]) conclude(err error) {
	if p.state != nil {
		p.InFlight = len(p.state.known.Open())
	}
	failed := err != nil && !onlyRefused(err)
	p.wentByRead(failed)
	p.Err, p.Calls = err, p.calls.all()
	p.requeue(failed)
}

// tellPanic sends an event about a panic, and panics again.
func (p *pass[O, C]) tellPanic() {
	value := recover()
	if value == nil {
		return
	}
	what := value
	if call, ok := value.(*slowstart.Panic); ok {
		what = call.Value
	}
	if !object.IsNil(p.Owner) {
		p.tellPanicked(what)
	}
	panic(value)
}

func (p *pass[O, C]) tellPanicked(value any) {
	p.event(corev1.EventTypeWarning, Panicked, p.failure("a function of the Kind or the client panicked, and the log has the stack: %v", value).Error())
}

// believe notes in the ledger a child that was shown by a call that began at start.
func (p *pass[O, C]) believe(start ledger.Moment, c C) {
	_ = p.state.known.Told(start, c, p.opts.Now()) // its name was checked
}

// controls reports whether the owner is the controller of a child.
func (p *pass[O, C]) controls(c C) bool {
	owner := object.OwnerOf(p.Owner, p.kind.Owner.GroupKind())
	return owner.Controls(c)
}

// isReplica reports whether a child is one of the owner's active children.
func (p *pass[O, C]) isReplica(c C) bool {
	return p.controls(c) && p.spec.Selector.Matches(labels.Set(c.GetLabels())) && p.rules.Active(c) && c.GetDeletionTimestamp() == nil
}

func (p *pass[O, C]) event(eventType, reason, message string) {
	if p.opts.Events != nil && p.restores.proof() == nil {
		p.opts.Events.Event(p.Owner, eventType, reason, message)
	}
}

// fails notes an error of the pass, and the pass continues.
func (p *pass[O, C]) fails(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// err joins all errors of the pass. If there are none, err returns nil.
func (p *pass[O, C]) err() error {
	if len(p.errs) == 1 {
		return p.errs[0]
	}
	return errors.Join(p.errs...)
}

// failure returns an error that names the owner.
func (p *pass[O, C]) failure(format string, args ...any) error {
	return fmt.Errorf("controller: %s %q: %w", p.kind.Owner.Kind, object.Name(p.Owner), fmt.Errorf(format, args...))
}

// restored returns an error for passes of an owner if the server was restored from a backup.
func (r *reconciler[O, C]) restored(owner types.NamespacedName) error {
	if proof := r.restores.proof(); proof != nil {
		return fmt.Errorf("controller: %s %q: %w", r.kind.Owner.Kind, owner, proof)
	}
	return nil
}

// A Pass describes what one call of Sync did for an owner. The lists of a Pass have the children as the
// pass last saw them. Do not change a Pass.
type Pass[O, C Object] struct {
	// Name is the owner's name. Owner is the owner from the cache or, if the cache has been behind for
	// some seconds, from the server. Owner is nil if the owner does not exist, or if the pass did not
	// read the owner because the cache was behind.
	Name  types.NamespacedName
	Owner O
	Outcome[C]
	// Stale says which cache does not yet show a write of an earlier pass. If Stale is not zero, this
	// pass did nothing.
	Stale expectations.Stale
	// Scale is what the pass tried to create and delete, after Kind.Prepare. In a rollout with
	// MaxUnavailable or MaxSurge, Scale may have both creations and deletions. Scale may also have
	// creations and deletions if children that must go could not be deleted while others were missing.
	Scale replicas.Scale[C]
	// Adopted and Released are the children that were patched successfully. Released also has children
	// that turned out to be gone. AdoptionRejected are orphans that the server does not let the owner
	// adopt. AdoptionPending are orphans whose adoption failed but may still succeed. The pass creates no
	// children in place of these orphans.
	Adopted, Released, AdoptionRejected, AdoptionPending []C
	// Created and Deleted are the children that were created and deleted successfully. Created also has
	// children that were found on the server after their creation had failed.
	Created, Deleted []C
	// Failed counts the calls that failed, and the adoptions that were not tried
	// because the owner may not adopt. Skipped counts the creations that slow start
	// did not try after a failure.
	Failed, Skipped int
	// InFlight counts the names whose creations may have taken effect, or may still take effect. Refused
	// creations do not count. Later passes send these creations again, or look for their children.
	InFlight int
	// ViewWasStale reports whether the children were listed live because the cache
	// was known to be old.
	ViewWasStale bool
	// OwnerWasStale reports whether calls of the Controller have shown that the cached owner is old. If
	// so, the owner is gone or being deleted, or wants something else. Nothing was created or deleted for
	// the cached owner.
	OwnerWasStale bool
	// OwnerErr is why a read of the owner from the server failed. The pass reads the owner before
	// deletions and adoptions, and before or after a status write.
	OwnerErr error
	// LookErr is why the pass could not find out whether a creation or deletion without an answer took
	// effect. That creation or deletion stays in flight.
	LookErr error
	// Calls are the calls to the server, in the order in which they were answered.
	Calls []Call
	// GateChanges are the gates that have lasted for a second, changed or ended. Log one line for each
	// change.
	GateChanges []GateChange
	// Observed reports whether the children were listed and a plan was made. If Observed is false, the
	// pass could not compute a status.
	Observed bool
	// Status is the owner with its new status, as the server stored both. If no status was written,
	// Status is nil.
	Status O
	// StatusErr is why the status write failed. If the write succeeded or was not necessary, StatusErr is
	// nil. If nothing else failed, StatusErr is the same as Err.
	StatusErr error
	// RelatedErr is the error of Cache.Related, or nil. After such an error, pods are not ranked by
	// co-location.
	RelatedErr error
	// RequeueAfter and Err are the results of Sync, with one exception. If the spec is refused, Err is a
	// *replicas.RefusedError, although Sync returned no error.
	RequeueAfter time.Duration
	Err          error
	// Took is how long the pass took.
	Took time.Duration
}

// Conflicts counts the delete calls that met a Conflict, except those for children that a webhook made
// useless.
func (p Pass[O, C]) Conflicts() int {
	return countCalls(p.Calls, func(c Call) bool { return c.Verb == "Delete" && !c.stray && apierrors.IsConflict(c.Err) })
}

// LiveLists counts the lists of children that did not use the cache.
func (p Pass[O, C]) LiveLists() int { return countCalls(p.Calls, isList) }

// LiveReads counts the reads of one child that did not use the cache.
func (p Pass[O, C]) LiveReads() int { return countCalls(p.Calls, isRead) }

// mostInText is how many names, and how many calls, the result of String has at most.
const mostInText = 20

// String describes the pass in a few lines. The lines show the numbers of wanted and active children,
// each call, why children were chosen for deletion, and what held the pass back.
func (p Pass[O, C]) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s: ", p.Now.UTC().Format(time.RFC3339Nano), p.Name)
	if p.Observed {
		fmt.Fprintf(&text, "%d wanted, %d active", p.Desired, len(p.Active))
		if names := firstNames(p.Active); len(names) > 0 {
			fmt.Fprintf(&text, " (%s)", strings.Join(names, " "))
		}
		fmt.Fprintf(&text, ", %d terminating", len(p.Terminating))
	} else {
		text.WriteString("the children were not counted")
	}
	for _, call := range p.Calls[:min(len(p.Calls), mostInText)] {
		fmt.Fprintf(&text, "\n  %v", call)
	}
	if more := len(p.Calls) - mostInText; more > 0 {
		fmt.Fprintf(&text, "\n  and %d more calls", more)
	}
	for _, v := range p.Scale.Delete[:min(len(p.Scale.Delete), mostInText)] {
		if !object.IsNil(v.Object) {
			fmt.Fprintf(&text, "\n  %s was chosen: %s", v.Object.GetName(), v.Explain())
		}
	}
	for _, g := range p.Gates {
		fmt.Fprintf(&text, "\n  %v", g)
	}
	if p.Err != nil {
		fmt.Fprintf(&text, "\n  error: %s", oneLine(p.Err))
	}
	return text.String()
}

// firstNames returns the names of the first children, and "..." if there are more than mostInText.
func firstNames[C Object](children []C) (names []string) {
	for _, c := range children[:min(len(children), mostInText)] {
		if !object.IsNil(c) {
			names = append(names, c.GetName())
		}
	}
	if len(children) > mostInText {
		names = append(names, "...")
	}
	return names
}
