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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
)

// A pass is one call of Sync.
type pass[O, C Object] struct {
	*reconciler[O, C]
	Pass[O, C] // what Kind.Observe gets
	calls      callLog
	inTerm     int     // the term in which the pass began
	step       step    // the step that the pass has reached
	errs       []error // what went wrong
	isObserved bool    // Kind.Observe was called, so it is not called again after its own panic

	// These fields are set by p.wants.
	key    expectations.Key
	cached O // the owner from the cache; Owner may be a newer version from the server
	state  *memory[C]
	spec   replicas.Spec[C]
	rules  replicas.Rules[C] // those of the spec, complete
	// ownerRead: a read of this pass has shown that the owner on the server wants the same children as p.Owner.
	// ownerOld: a call has shown that it is gone, or wants something else.
	ownerRead, ownerOld bool
	ownerErr            error // of a read of the owner that failed, so that no other step of the pass tries it again
	cacheIsOld          bool  // calls have shown that the cached owner is gone, or that others have changed it
	fresh               O     // the owner as a read in this pass has shown it
	remembers           bool  // whether the pass records the times at which children become ready, which their status does not contain

	left int // how many active children have left since the last pass, until a read shows that the owner still wants them

	// These fields are set by p.plan.
	start    ledger.Moment // when the pass began to read the cache
	snapshot ledger.Snapshot[C]
	view     view[C]
	facts    replicas.Facts[C]
	others   *[]C // what Cache.Related has returned, or nil before it is asked
	own      ownPlan[C]
}

// sync runs a pass for an owner, and reports it to Kind.Observe.
func (r *reconciler[O, C]) sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error) {
	if err := r.restored(owner); err != nil { // the cache and the ledger show what the server no longer has
		return 0, err
	}
	standing, ok := r.owners.enter(owner)
	if !ok {
		return 0, fmt.Errorf("controller: %s %q: a pass for this owner is already under way: do not call Sync twice at once for one owner", r.kind.Owner.Kind, owner)
	}
	p := &pass[O, C]{reconciler: r, inTerm: r.term.number()}
	p.Name, p.Now, p.Standing = owner, r.opts.Now(), standing
	defer func() { r.owners.exit(owner, p.Standing) }() // last, because panics sets the gates that stand
	defer p.panics(ctx)
	p.run(ctx)
	err := p.err()
	if restored := r.restored(owner); restored != nil {
		// The live list of this pass was the proof, and each change after it was refused. Those errors would hide the cause.
		err = restored
		p.sendRestoredEvent(restored)
	}
	p.end(ctx, err)
	if onlyRefused(p.Err) { // a rate limiter would try it again and again, but only a change of the owner mends it
		return p.RequeueAfter, nil
	}
	return p.RequeueAfter, p.Err
}

// run carries out the steps of a pass.
func (p *pass[O, C]) run(ctx context.Context) {
	if !p.wants(ctx) { // without the owner and its Spec, no step has a meaning
		return
	}
	defer p.state.ledger.Done()
	// The gates of steps that a pass does not reach stand, for example QuotaFull of the pass before if the cache fails now.
	// p.step says how far the pass came, so it is set before each step.
	p.step = plans
	plan, ok := p.plan(ctx)
	if ok {
		p.step = claims
		var scale replicas.Scale[C]
		// Claims come before the other calls, because they decide which children count. The plan counts on all adoptions,
		// and after one that failed it could delete a healthy child, so claim plans again.
		if scale, ok = p.claim(ctx, plan); ok {
			p.step = scales
			p.scale(ctx, scale)
		}
	}
	// The status comes last, to count what the pass did, and also after errors, to report them. But a pass that waits for
	// its cache comes again within a second, with newer numbers.
	if p.Observed && gateOf(p.Gates, CacheBehind, "") == nil {
		p.report(ctx)
	}
}

// scale changes children in place, creates missing ones, deletes surplus ones, and discards those that have ended.
func (p *pass[O, C]) scale(ctx context.Context, planned replicas.Scale[C]) {
	if p.Waiting() && planned.IsZero() { // the pass does not know which children are missing or surplus
		return
	}
	p.limits(planned) // before carryOut, because Prepare is shown how much must wait
	// The owner was deleted, its watch hangs, and the garbage collector deletes the pods. It would delete each one that
	// replaces another, too. So pods that left, and that no pass deleted or released, are replaced after a read.
	p.left = max(p.state.active-len(p.Active)-len(p.Released), 0)
	scale, changed, made, gone := p.carryOut(ctx, planned)
	// One look is for all three. The errors come after it, because a call without an answer may have taken effect.
	found, held := p.lookForLost(ctx, scale, made.takenNames())
	changed.conclude(found)
	made.conclude(found)
	gone.conclude(found)
	if planned.IsZero() && !held { // if the holds stayed, a Conflict of long ago would cost the next deletion a live list
		p.state.nothingLeft(p.Now)
	}
	active := len(p.Active) + len(p.Created) - len(p.activeOf(p.Deleted))
	active += len(p.activeOf(p.Retired)) - len(p.Retired) + len(p.recalledToActive())
	// While the owner cannot be read, those that left still count, so that each pass tries again before it replaces them:
	// active <= p.state.active <= max(active, Desired).
	p.state.active = max(active, min(active+p.left, int(p.Desired)))
}

// carryOut makes the calls of a plan, and returns what is left of it. No step adds a call: sent <= allowed <= planned.
func (p *pass[O, C]) carryOut(ctx context.Context, planned replicas.Scale[C]) (scale replicas.Scale[C], changed *updates[O, C], made *creations[O, C], gone *deletions[O, C]) {
	if planned.IsZero() {
		if !p.ownerOld {
			// Prepare has begun to drain web-3, and the owner wants it again. Only an empty plan lets Prepare undo that.
			_, err := p.callPrepare(ctx, planned, planned)
			p.addError(err)
		}
		return planned, nil, nil, nil
	}
	// A quota was full a second ago, and each event of a child brings a pass. Nothing is worth a read of the owner until
	// there is something to send. But held creations are shown to Prepare, which may call off a drain.
	scale, newborns := p.notHeld(planned)
	isHeld := scale.IsZero()
	if isHeld && (p.ownerOld || deletesOrChanges(planned) || p.kind.Prepare == nil) {
		return planned, nil, nil, nil
	}
	// The cached owner wants two, and a person has set it to five again. This must be known before Prepare, which may
	// already drain the children in the plan.
	scale, ok := p.ownerAgrees(ctx, planned, scale)
	if ok {
		var err error
		scale, err = p.callPrepare(ctx, planned, scale)
		p.addError(err)
	}
	if isHeld {
		return planned, nil, nil, nil
	}
	// Prepare may have removed any part of the plan, so what is left is counted once more, with all that may still land.
	scale = p.clampToRoom(ctx, scale)
	if scale.IsZero() {
		return scale, nil, nil, nil
	}
	p.Scale = scale
	p.reportScaling(ctx, scale)
	// A change must not meet what the same pass does after it, and a refusal of it says nothing about the rest.
	if len(scale.Update) > 0 {
		changed = p.update(ctx, scale.Update)
	}
	// A rollout may take an old child only when there is another in its place. So creations go first, but a full
	// quota bars no deletion, which may be what makes room in it.
	if scale.Create > 0 {
		made = p.create(ctx, scale, newborns)
	}
	if victims := slices.Concat(scale.Delete, scale.Discard); len(victims) > 0 {
		gone = p.delete(ctx, victims)
	}
	return scale, changed, made, gone
}

// end completes the Pass and reports it to Kind.Observe.
func (p *pass[O, C]) end(ctx context.Context, err error) {
	p.conclude(err)
	p.Took = p.opts.Now().Sub(p.Now)
	if ctx.Err() == nil { // a canceled pass might not have found all of its gates
		p.stand()
	}
	if p.kind.Observe != nil && !p.isObserved {
		p.isObserved = true
		p.kind.Observe(ctx, p.Pass)
	}
}

// panics reports a panic of the pass, and then panics again.
func (p *pass[O, C]) panics(ctx context.Context) {
	value := recover()
	if value == nil {
		return
	}
	cause := value
	for call, ok := cause.(*slowstart.Panic); ok; call, ok = cause.(*slowstart.Panic) { // creations in several places have one within another
		cause = call.Value
	}
	if !object.IsNil(p.Owner) {
		p.sendPanicEvent(cause)
	}
	p.gate(PassPanicked, "", 0, fmt.Errorf("%v", cause))
	p.step = looks // no later step has ended, so gates of earlier passes stand
	p.end(ctx, fmt.Errorf("controller: %s %q: a function of the Kind or the client panicked: %v", p.kind.Owner.Kind, p.Name, cause))
	panic(value)
}

func (p *pass[O, C]) sendPanicEvent(value any) {
	p.event(corev1.EventTypeWarning, Panicked, p.failure("a function of the Kind or the client panicked, and the log has the stack: %v", value).Error())
}

// observe records a child that the call that began at start has returned.
func (p *pass[O, C]) observe(start ledger.Moment, c C) {
	_ = p.state.ledger.Observe(start, c, p.opts.Now()) // no error is possible, because the caller has checked the child
}

func (p *pass[O, C]) controls(c C) bool {
	owner := object.OwnerOf(p.Owner, p.kind.Owner.GroupKind())
	return owner.Controls(c)
}

// isReplica reports whether a child is one of the owner's active children.
func (p *pass[O, C]) isReplica(c C) bool {
	return p.controls(c) && p.spec.Selector.Matches(labels.Set(c.GetLabels())) && p.rules.Active(c) && !p.leaves(c)
}

// leaves reports whether a child is being deleted or bears the mark of Spec.Retire.
func (p *pass[O, C]) leaves(c C) bool {
	return c.GetDeletionTimestamp() != nil || p.spec.Rules.Leaving != nil && p.spec.Rules.Leaving(c)
}

func (p *pass[O, C]) activeOf(children []C) (active []C) {
	for _, c := range children {
		if p.rules.Active(c) {
			active = append(active, c)
		}
	}
	return active
}

// recalledToActive returns the recalled children that did not count while they were leaving.
func (p *pass[O, C]) recalledToActive() []C {
	if len(p.Recalled) == 0 {
		return nil
	}
	terminating := sets.New(idsIn(p.Terminating)...)
	return filter(p.Recalled, func(c C) bool { return terminating.Has(object.ID(c)) })
}

func (p *pass[O, C]) event(eventType, reason, message string) {
	if p.opts.Events != nil && p.restores.Proof() == nil { // after a restore each change is refused, and one event says so
		p.opts.Events.Event(p.Owner, eventType, reason, message)
	}
}

// addError adds an error to those of the pass, which goes on. A nil error is ignored.
func (p *pass[O, C]) addError(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// addScaleError records for the status why creations or deletions failed.
func (p *pass[O, C]) addScaleError(part Stops, err error) {
	p.ScaleErr = joinErrors(p.ScaleErr, err)
	p.unscaled |= part
}

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

// restored returns an error that names the owner if the server was restored from a backup.
func (r *reconciler[O, C]) restored(owner types.NamespacedName) error {
	if proof := r.restores.Proof(); proof != nil {
		return fmt.Errorf("controller: %s %q: %w", r.kind.Owner.Kind, owner, proof)
	}
	return nil
}

// A Pass describes what one call of Sync did for an owner. Its lists contain the children as the pass last saw them. A
// Pass must not be modified.
type Pass[O, C Object] struct {
	// Name is the owner's name, and Owner the owner that the pass used. Owner comes from the cache, unless the cache has
	// been behind for a second, in which case it comes from the server. It is nil if the owner does not exist.
	Name  types.NamespacedName
	Owner O
	Outcome[C]
	// Scale lists the changes, creations and deletions that the pass set out to make, without those that Kind.Prepare
	// removed. With Slots, MaxUnavailable or MaxSurge, it may contain both creations and deletions.
	Scale replicas.Scale[C]
	// Adopted and Released list the children that were patched successfully. Released also contains children that turned
	// out to be gone.
	Adopted, Released []C
	// Created and Deleted list the children that were created and deleted successfully. Created also contains a child whose
	// creation returned an error, but which was then found on the server.
	Created, Deleted []C
	// Changed lists the children that were changed in place, as the server returned them. It also contains a child whose
	// change had no answer, but which was then found with the change.
	Changed []C
	// Retired lists the children that were asked to leave by the mark of Spec.Retire, and Recalled those whose mark was
	// taken back, both as the server returned them.
	Retired, Recalled []C
	// Failed is the number of failed calls, and of adoptions that were not tried because the owner could not be checked or
	// must not adopt. Skipped is the number of creations that slow start did not try after a failure.
	Failed, Skipped int
	// InFlight is the number of creations, counted by name, that may have taken effect or may still take effect, without
	// those that the server refused. Later passes send them again, or look for their children on the server. They are the
	// gate CreationInFlight only if they hold other creations back.
	InFlight int
	// Calls lists the calls to the server, sorted by the time of the answer.
	Calls []Call
	// Standing lists the gates that are in effect after the pass: its Gates, and those of earlier passes if this pass did
	// not reach the part that met them. Compare it with Standing of the owner's last pass to find out which gates have
	// begun and ended.
	Standing []Gate
	// Observed reports whether the children were listed and a plan was made. Otherwise the pass could not compute a status.
	Observed bool
	// Status is the owner with its new status, as the server returned it, or nil if no status was written.
	Status O
	// StatusErr is the error of a failed status write, or nil if the write succeeded or was not necessary. It is equal to
	// Err if nothing else in the pass failed.
	StatusErr error
	// RequeueAfter and Err are the results of Sync, except that Err is a *replicas.RefusedError if the spec is refused,
	// although Sync returns no error, and that Err describes the panic if the pass panicked, although Sync panics.
	RequeueAfter time.Duration
	Err          error
	// Took is the duration of the pass.
	Took time.Duration
}

// mostInText is the maximum length of each list in the result of String.
const mostInText = 20

// String describes the pass in a few lines: the numbers of wanted and active children, each call, why children were
// chosen for deletion, and what held the pass back.
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

// firstNames returns the names of at most mostInText children, and then "..." if there are more.
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
