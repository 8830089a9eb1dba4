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
	// ownerRead is true if a read in this pass has shown that the owner on the server wants the same children
	// as p.Owner. The field ownerOld is true if a call has shown that the owner is gone, or wants something
	// else.
	ownerRead, ownerOld bool
	ownerErr            error // of a read of the owner that failed, so that no other step of the pass tries it again
	cacheIsOld          bool  // calls have shown that the cached owner is gone, or that others have changed it
	fresh               O     // the owner as a read in this pass has shown it
	remembers           bool  // whether the pass records the times at which children become ready, which their status does not contain

	// left is the number of active children that have left since the last pass, until a read has confirmed that
	// the owner still wants them.
	left int

	// These fields are set by p.plan.
	start    ledger.Moment // when the pass began to read the cache
	snapshot ledger.Snapshot[C]
	view     view[C]
	facts    replicas.Facts[C]
	others   *[]C // what Cache.Related has returned, or nil before it is asked
	own      ownPlan[C]
}

// sync runs a pass for an owner, and reports the pass to the metrics and to Kind.Observe.
func (r *reconciler[O, C]) sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error) {
	if err := r.restored(owner); err != nil {
		return 0, err
	}
	standing, ok := r.owners.enter(owner)
	if !ok {
		return 0, fmt.Errorf("controller: %s %q: a pass for this owner is already under way: do not call Sync twice at once for one owner", r.kind.Owner.Kind, owner)
	}
	p := &pass[O, C]{reconciler: r, inTerm: r.term.number()}
	p.Name, p.Now, p.Standing = owner, r.opts.Now(), standing
	defer func() { r.owners.exit(owner, p.Standing) }()
	defer p.panics(ctx)
	p.run(ctx)
	err := p.err()
	if restored := r.restored(owner); restored != nil {
		err = restored
		p.sendRestoredEvent(restored)
	}
	p.end(ctx, err)
	if onlyRefused(p.Err) {
		return p.RequeueAfter, nil
	}
	return p.RequeueAfter, p.Err
}

// run carries out the steps of a pass.
func (p *pass[O, C]) run(ctx context.Context) {
	if !p.wants(ctx) { // determines the owner and what it wants
		return
	}
	defer p.state.ledger.Done()
	p.step = plans
	plan, ok := p.plan(ctx) // determines which children exist, and what to do about them
	if ok {
		p.step = claims
		var scale replicas.Scale[C]
		if scale, ok = p.claim(ctx, plan); ok { // adopts and releases children, and returns what to create and delete after that
			p.step = scales
			p.scale(ctx, scale)
		}
	}
	if p.Observed && gateOf(p.Gates, CacheBehind, "") == nil {
		p.report(ctx) // writes the status, even after an error
	}
}

// scale changes children in place, creates missing ones, deletes surplus ones, and discards those that have ended.
func (p *pass[O, C]) scale(ctx context.Context, planned replicas.Scale[C]) {
	if p.Waiting() && planned.IsZero() { // the pass does not know which children are missing or surplus
		return
	}
	p.limits(planned)
	p.left = max(p.state.active-len(p.Active)-len(p.Released), 0)
	scale, changed, made, gone := p.carryOut(ctx, planned)
	found, held := p.lookForLost(ctx, scale, made.takenNames())
	changed.conclude(found)
	made.conclude(found)
	gone.conclude(found)
	if planned.IsZero() && !held {
		p.state.nothingLeft(p.Now)
	}
	active := len(p.Active) + len(p.Created) - len(p.activeOf(p.Deleted))
	active += len(p.activeOf(p.Retired)) - len(p.Retired) + len(p.recalledToActive())
	p.state.active = max(active, min(active+p.left, int(p.Desired)))
}

// carryOut makes the calls of a plan, and returns what is left of it. Each step may remove calls, and none adds
// any.
func (p *pass[O, C]) carryOut(ctx context.Context, planned replicas.Scale[C]) (scale replicas.Scale[C], changed *updates[O, C], made *creations[O, C], gone *deletions[O, C]) {
	if planned.IsZero() {
		if !p.ownerOld {
			_, err := p.callPrepare(ctx, planned, planned) // Prepare may undo what it began
			p.addError(err)
		}
		return planned, nil, nil, nil
	}
	// A quota was full a second ago, and each event of a child brings a pass. Nothing is worth a read of the owner
	// until there is something to send.
	scale, newborns := p.notHeld(planned)
	isHeld := scale.IsZero()
	if isHeld && (p.ownerOld || deletesOrChanges(planned) || p.kind.Prepare == nil) {
		return planned, nil, nil, nil
	}
	// The cached owner wants two, and a person has set it to five again. This must be known before Prepare, which
	// may already drain the children that are to go.
	scale, ok := p.ownerAgrees(ctx, planned, scale)
	if ok {
		var err error
		scale, err = p.callPrepare(ctx, planned, scale)
		p.addError(err)
	}
	if isHeld {
		return planned, nil, nil, nil
	}
	// The author may have removed any part of the plan, so what is left is counted once more, with all that may
	// still land.
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

// panics is deferred by sync. If the pass panics, it reports that and panics again.
func (p *pass[O, C]) panics(ctx context.Context) {
	value := recover()
	if value == nil {
		return
	}
	cause := value
	for call, ok := cause.(*slowstart.Panic); ok; call, ok = cause.(*slowstart.Panic) { // of an owner in no namespace, one runs in another
		cause = call.Value
	}
	if !object.IsNil(p.Owner) {
		p.sendPanicEvent(cause)
	}
	p.gate(PassPanicked, "", 0, fmt.Errorf("%v", cause))
	p.step = looks // the pass has not come to the end of any later step
	p.end(ctx, fmt.Errorf("controller: %s %q: a function of the Kind or the client panicked: %v", p.kind.Owner.Kind, p.Name, cause))
	panic(value)
}

func (p *pass[O, C]) sendPanicEvent(value any) {
	p.event(corev1.EventTypeWarning, Panicked, p.failure("a function of the Kind or the client panicked, and the log has the stack: %v", value).Error())
}

// observe records in the ledger a child that a call has returned. The call began at start.
func (p *pass[O, C]) observe(start ledger.Moment, c C) {
	_ = p.state.ledger.Observe(start, c, p.opts.Now()) // no error is possible, because the caller has checked the child
}

// controls reports whether the owner is the controller of a child.
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
	if p.opts.Events != nil && p.restores.Proof() == nil {
		p.opts.Events.Event(p.Owner, eventType, reason, message)
	}
}

// addError adds err to the errors of the pass, but ignores a nil error. The pass continues.
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

// err returns the joined errors of the pass, or nil if there are none.
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

// restored returns an error if the server was restored from a backup. The error names the owner.
func (r *reconciler[O, C]) restored(owner types.NamespacedName) error {
	if proof := r.restores.Proof(); proof != nil {
		return fmt.Errorf("controller: %s %q: %w", r.kind.Owner.Kind, owner, proof)
	}
	return nil
}

// A Pass describes what one call of Sync did for an owner. Its lists contain the children as the pass last
// saw them. A Pass must not be modified.
type Pass[O, C Object] struct {
	// Name is the owner's name. Owner is the owner that the pass used. Normally, Owner comes from the cache.
	// If the cache has been behind for a second, Owner comes from the server. Owner is nil if the owner does
	// not exist.
	Name  types.NamespacedName
	Owner O
	Outcome[C]
	// Scale lists the changes, creations and deletions that the pass set out to make, without those that Kind.Prepare
	// removed. With Slots, MaxUnavailable or MaxSurge, Scale may contain both creations and deletions.
	Scale replicas.Scale[C]
	// Adopted and Released list the children that were patched successfully. Released also contains children
	// that turned out to be gone.
	Adopted, Released []C
	// Created and Deleted list the children that were created and deleted successfully. If a creation returned
	// an error but the child was then found on the server, Created contains this child, too.
	Created, Deleted []C
	// Changed lists the children that were changed in place, as the server returned them. If the answer was lost but
	// the child was then found with the change, Changed contains it, too.
	Changed []C
	// Retired lists the children that were asked to leave by the mark of Spec.Retire, and Recalled those whose mark was
	// taken back, both as the server returned them.
	Retired, Recalled []C
	// Failed is the number of failed calls. If adoptions were not tried because the owner could not be
	// checked or must not adopt, Failed also counts these adoptions. Skipped is the number of creations
	// that slow start did not try after a failure.
	Failed, Skipped int
	// InFlight is the number of creations, counted by name, that may have taken effect or may still take
	// effect. Creations that the server refused are not included. Later passes send the creations in
	// flight again, or look for their children on the server. CreationInFlight is a gate only if they hold
	// other creations back.
	InFlight int
	// Calls lists the calls to the server, sorted by the time of the answer.
	Calls []Call
	// Standing lists the gates that are in effect after the pass. These are its Gates, and gates of earlier passes
	// if this pass did not reach the part that met them. Compare it with Standing of the owner's last pass to find
	// out which gates have begun and ended.
	Standing []Gate
	// Observed reports whether the children were listed and a plan was made. If Observed is false, the
	// pass could not compute a status.
	Observed bool
	// Status is the owner with its new status, as the server returned it after the status write. If no status
	// was written, Status is nil.
	Status O
	// StatusErr is the error of a failed status write. If the write succeeded or was not necessary, StatusErr
	// is nil. If nothing else in the pass failed, Err is equal to StatusErr.
	StatusErr error
	// RequeueAfter and Err are the results of Sync, with two exceptions. If the spec is refused, Err is a
	// *replicas.RefusedError, although Sync returned no error. If the pass panicked, Err says so, and Sync panics.
	RequeueAfter time.Duration
	Err          error
	// Took is the duration of the pass.
	Took time.Duration
}

// mostInText is the maximum length of each list of names, calls or deletions in the result of String.
const mostInText = 20

// String describes the pass in a few lines. The lines show the numbers of wanted and active children, each
// call, why children were chosen for deletion, and what held the pass back.
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

// firstNames returns the names of at most mostInText children. If there are more children, the last
// element is "...".
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
