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

// sync makes a pass and tells everybody what it did.
func (r *reconciler[O, C]) sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error) {
	if err := r.restored(owner); err != nil {
		return 0, err
	}
	if !r.owners.enter(owner) {
		return 0, fmt.Errorf("controller: %s %q: a pass for it is under way: call Sync for one owner once at a time", r.kind.Owner.Kind, owner)
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
	if len(p.Gates)+len(p.standing) > 0 && ctx.Err() == nil { // otherwise nothing new is known of them
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
	Pass[O, C] // what is told of the pass
	calls      calls
	inTerm     int           // the term in which the pass began
	standing   []Gate        // of the passes before
	step       step          // how far the pass has come
	errs       []error       // what went wrong
	retryAfter time.Duration // what the server, or a hold, makes an error wait

	// wants sets these.
	key    expectations.Key
	cached O // the owner as the cache has it: Owner, unless the pass goes by what it has read
	state  *memory[C]
	spec   replicas.Spec[C]
	rules  status.Rules[C]
	// ownerRead says that a read begun in this pass has shown that the server's owner wants
	// what the pass goes by; ownerOld that a read has shown that it does not.
	ownerRead, ownerOld bool
	remembers           bool // since when the children have been ready, because they have no such condition

	// plan sets these.
	start    ledger.Moment // when the pass began to read the cache
	snapshot ledger.Snapshot[C]
	view     view[C]
}

// run is the pass on one page.
func (p *pass[O, C]) run(ctx context.Context) {
	if !p.wants(ctx) { // the owner as it is by now, and what it wants
		return
	}
	defer p.state.known.Done()
	p.step = plans
	plan, ok := p.plan(ctx) // what is believed of the children, and what to do about it
	if ok {
		p.step = claims
		var scale replicas.Scale[C]
		if scale, ok = p.claim(ctx, plan); ok { // adopts and releases, and scales what is the owner's then
			p.step = scales
			p.scale(ctx, scale)
		}
	}
	if p.Observed && gateOf(p.Gates, CacheBehind, "") == nil {
		p.report(ctx) // the status, whatever went wrong
	}
}

// scale creates what is missing, or deletes what is too many, and discards what has ended.
func (p *pass[O, C]) scale(ctx context.Context, planned replicas.Scale[C]) {
	if p.Waiting() && planned.IsZero() { // nothing is known of what is missing or too many
		return
	}
	p.limits(planned)
	if planned.IsZero() {
		p.nothingToDo(ctx, planned)
	} else if ok := p.carryOut(ctx, planned, planned); ok && p.mayFillSlots(ctx, planned) {
		if missing := p.missingSlots(); !missing.IsZero() {
			all := missing
			all.Delete, all.Discard = planned.Delete, some(planned.Discard, p.isThere) // no child that is active has gone
			p.carryOut(ctx, all, missing)
		}
	}
	p.state.active = len(p.Active) + len(p.Created) - len(p.activeOf(p.Deleted))
}

// nothingToDo is the rest of a pass whose plan neither creates nor deletes.
func (p *pass[O, C]) nothingToDo(ctx context.Context, planned replicas.Scale[C]) {
	if p.kind.Prepare != nil && !p.ownerOld {
		_, err := p.author(ctx, p.seen(p.Active, p.Terminating), planned, planned) // which may call off what it began
		p.fails(err)
	}
	if held := p.lookForLost(ctx, planned); !held {
		p.state.nothingLeft(p.Now)
	}
}

// carryOut makes the calls of a scale, which is a part of what is planned, each step with what the
// one before has left of it. It reports whether nothing failed before the calls.
func (p *pass[O, C]) carryOut(ctx context.Context, planned, scale replicas.Scale[C]) (ok bool) {
	scale, newborns := p.notHeld(scale) // by earlier passes
	held := scale.IsZero()
	if held && (p.ownerOld || deletes(planned) || p.kind.Prepare == nil) {
		return true
	}
	scale, ok = p.ownerAgrees(ctx, planned, scale) // before the author's step, which may act for the victims
	if ok && p.kind.Prepare != nil {
		var err error
		scale, err = p.author(ctx, p.seen(p.Active, p.Terminating), planned, scale)
		p.fails(err)
		ok = err == nil
	}
	if held {
		return ok
	}
	defer p.tellUntried(scale)
	p.holdTaken(ctx, scale)
	scale = p.within(p.Active, scale) // the promise: no call goes out beyond the room
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

// conclude completes what is told of the pass. A refusal is no error to the caller: what else asks
// for a requeue stays.
func (p *pass[O, C]) conclude(err error) {
	if p.state != nil {
		p.InFlight = len(p.state.known.Open())
	}
	failed := err != nil && !onlyRefused(err)
	p.wentByRead(failed)
	p.Err, p.Calls = err, p.calls.all()
	p.requeue(failed)
}

// tellPanic makes an event of a panic, which goes on.
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

// believe notes a child that a call has shown which began at start.
func (p *pass[O, C]) believe(start ledger.Moment, c C) {
	_ = p.state.known.Told(start, c, p.opts.Now()) // its name was checked
}

// controls reports whether a child is the owner's.
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

// fails notes an error of the pass, which goes on.
func (p *pass[O, C]) fails(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// err is all that went wrong; nil if nothing did.
func (p *pass[O, C]) err() error {
	if len(p.errs) == 1 {
		return p.errs[0]
	}
	return errors.Join(p.errs...)
}

// failure is an error that names the owner.
func (p *pass[O, C]) failure(format string, args ...any) error {
	return fmt.Errorf("controller: %s %q: %w", p.kind.Owner.Kind, object.Name(p.Owner), fmt.Errorf(format, args...))
}

// restored returns the error of passes for an owner if the server was restored.
func (r *reconciler[O, C]) restored(owner types.NamespacedName) error {
	if proof := r.restores.proof(); proof != nil {
		return fmt.Errorf("controller: %s %q: %w", r.kind.Owner.Kind, owner, proof)
	}
	return nil
}

// A Pass tells what one call of Sync did for an owner. Its lists point to the
// children as the pass last saw them. Read only.
type Pass[O, C Object] struct {
	// Name is the owner's name. Owner is the owner as the cache has it or, if that has
	// been behind for some seconds, as the server has it; nil if there is none, or if
	// the pass did not read it because the cache was behind.
	Name  types.NamespacedName
	Owner O
	Outcome[C]
	// Stale says which cache does not show a write of an earlier pass yet; this
	// pass then did nothing. It is zero otherwise.
	Stale expectations.Stale
	// Scale is what the pass set out to create or delete, after Kind.Prepare. It is
	// both if children that must go could not be deleted and others were missing, and in a rollout
	// with MaxUnavailable or MaxSurge.
	Scale replicas.Scale[C]
	// Adopted and Released are the children of successful patches; Released also
	// has those that turned out to be gone. AdoptionRejected are orphans that the server
	// does not let the owner adopt. AdoptionPending are orphans whose adoption failed,
	// but that may become the owner's: none is created in their place.
	Adopted, Released, AdoptionRejected, AdoptionPending []C
	// Created and Deleted are the children of successful calls. Created also has
	// those that were found on the server after the call had failed.
	Created, Deleted []C
	// Failed counts the calls that failed, and the adoptions that were not tried
	// because the owner may not adopt. Skipped counts the creations that slow start
	// did not try after a failure.
	Failed, Skipped int
	// InFlight counts the names under which creations were sent that may have taken
	// effect or may do so yet. Refused creations do not count. The names are sent again
	// or looked for.
	InFlight int
	// ViewWasStale reports whether the children were listed live because the cache
	// was known to be old.
	ViewWasStale bool
	// OwnerWasStale reports whether calls of the Controller have shown that the owner is
	// gone, is being deleted, or wants something else than the one in the cache: then
	// nothing was created or deleted by that one.
	OwnerWasStale bool
	// OwnerErr is why the owner could not be read from the server before children were
	// deleted, before an adoption, or before or after a status write.
	OwnerErr error
	// LookErr is why a child could not be read from the server whose creation or deletion had
	// no answer. The call stays in flight.
	LookErr error
	// Calls are the calls to the server, in the order in which they were answered.
	Calls []Call
	// GateChanges are what is worth a line in a log: gates that have lasted for a second,
	// changed or ended.
	GateChanges []GateChange
	// Observed reports whether the children were listed and a plan was made. If
	// not, there was nothing to make a status from.
	Observed bool
	// Status is the owner as the server stored it with its new status; nil if none
	// was written.
	Status O
	// StatusErr is why the status could not be written; nil if it could, or did not
	// have to be. If nothing else failed, it is the same as Err.
	StatusErr error
	// RelatedErr is why pods were not ranked by co-location; nil if Cache.Related
	// returned no error.
	RelatedErr error
	// RequeueAfter and Err are what Sync returned. If the spec is refused, Err is a
	// *replicas.RefusedError, although Sync returned nil.
	RequeueAfter time.Duration
	Err          error
	// Took is how long the pass took.
	Took time.Duration
}

// Conflicts counts the delete calls that met a Conflict, without those of children that a webhook
// made useless.
func (p Pass[O, C]) Conflicts() int {
	return countCalls(p.Calls, func(c Call) bool { return c.Verb == "Delete" && !c.stray && apierrors.IsConflict(c.Err) })
}

// LiveLists counts the lists of children that did not use the cache.
func (p Pass[O, C]) LiveLists() int { return countCalls(p.Calls, isList) }

// LiveReads counts the reads of one child that did not use the cache.
func (p Pass[O, C]) LiveReads() int { return countCalls(p.Calls, isRead) }

// mostInText is how many names, and how many calls, String has at most.
const mostInText = 20

// String describes the pass in a few lines: what was wanted and believed, each call, why the
// deleted children were chosen, and what held the pass back.
func (p Pass[O, C]) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s: %d wanted, %d active", p.Now.UTC().Format(time.RFC3339Nano), p.Name, p.Desired, len(p.Active))
	if names := firstNames(p.Active); len(names) > 0 {
		fmt.Fprintf(&text, " (%s)", strings.Join(names, " "))
	}
	fmt.Fprintf(&text, ", %d terminating", len(p.Terminating))
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
		fmt.Fprintf(&text, "\n  error: %v", p.Err)
	}
	return text.String()
}

// firstNames are the names of the first children, and "..." if there are more.
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
