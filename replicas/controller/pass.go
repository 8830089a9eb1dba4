// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

func (r *reconciler[O, C]) sync(ctx context.Context, owner types.NamespacedName) (time.Duration, error) {
	if err := r.restored(owner); err != nil {
		return 0, err
	}
	if !r.owners.enter(owner) {
		return 0, fmt.Errorf("controller: %s %q: a pass for it is under way: call Sync for one owner once at a time", r.kind.Owner.Kind, owner)
	}
	defer r.owners.exit(owner)
	p := &pass[O, C]{reconciler: r}
	p.Name, p.Now = owner, r.opts.Now()
	p.inTerm = r.term.number()
	p.standing = r.measures.standing(owner)
	defer p.tellPanic()
	err := p.run(ctx)
	if restored := r.restored(owner); restored != nil {
		err = restored
		p.retryOnly(0)
		p.tellRestored(restored)
	}
	p.end(err)
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

// restored returns the error of passes for an owner if the server was restored.
func (r *reconciler[O, C]) restored(owner types.NamespacedName) error {
	if proof := r.restores.proof(); proof != nil {
		return fmt.Errorf("controller: %s %q: %w", r.kind.Owner.Kind, owner, proof)
	}
	return nil
}

// run is the pass on one page: look, list and plan, claim, scale, report.
func (p *pass[O, C]) run(ctx context.Context) error {
	if goOn, err := p.look(ctx); !goOn {
		return err
	}
	defer p.state.known.Done()
	p.step = plans
	plan, err := p.plan(ctx)
	if !p.Observed {
		return err
	}
	var scale replicas.Scale[C]
	if err == nil {
		p.step = claims
		scale, err = p.claim(ctx, plan)
	}
	if errors.Is(err, errWait) {
		return nil
	}
	if errors.As(err, new(heldError)) { // no error: lists are tried again later
		return p.report(ctx, p.claimErr)
	}
	if err == nil {
		p.step = scales
		err = p.scale(ctx, scale)
	}
	return p.report(ctx, joinErrors(err, p.claimErr))
}

// look finds the owner and what it wants, and reports whether there is something
// to go on with.
func (p *pass[O, C]) look(ctx context.Context) (goOn bool, err error) {
	p.owners.awaitWrite(p.Name) // before the cache is asked, which may be told meanwhile
	stale, ready := p.writes.Ready(expectations.Key{NamespacedName: p.Name})
	if !ready && p.owners.isKnownOld(p.Name) {
		stale, ready = expectations.Stale{}, true
	}
	if !ready {
		p.Stale = stale
		p.gate(OwnWriteNotSeen, stale.Resource.String(), stale.RetryAfter, nil)
		return false, nil
	}
	owner, err := p.cache.Owner(ctx, p.Name)
	switch {
	case apierrors.IsNotFound(err):
		p.step = scales // nothing holds back what is gone
		p.forget(expectations.Key{NamespacedName: p.Name})
		if next := p.owners.sweep(p.Name, p.Now); next > 0 {
			p.comeBack(next)
		}
		return false, nil
	case err != nil:
		return false, fmt.Errorf("controller: %s %q: reading it: %w", p.kind.Owner.Kind, p.Name, err)
	case object.IsNil(owner):
		return false, fmt.Errorf("controller: %s %q: the cache returned nil", p.kind.Owner.Kind, p.Name)
	}
	if err := p.checkScope(owner); err != nil {
		return false, err
	}
	p.Owner, p.cached, p.key = owner, owner, expectations.KeyOf(owner)
	p.state = p.owners.get(p.key)
	owner, goOn, err = p.upToDate(ctx, owner)
	if !goOn {
		return false, err
	}
	p.Owner, p.state = owner, p.stateOf(owner, p.Now)
	p.state.wrote.read(owner.GetResourceVersion())
	if stale != (expectations.Stale{}) {
		p.state.known.Distrust()
	}
	p.Generation = owner.GetGeneration()
	if p.spec, err = p.kind.Spec(owner); err != nil {
		err = p.refuseSpec(err)
		p.gate(SpecRefused, "", 0, err)
		return false, err
	}
	p.asked = p.spec
	p.spec.Owner, p.spec.Kind, p.spec.Now = owner, p.kind.Owner, p.Now
	p.rules, p.Desired = counting(p.spec.Rules), p.spec.Replicas
	p.deletePendingStrays(ctx)
	return true, nil
}

// checkScope refuses an owner that events could not find.
func (r *reconciler[O, C]) checkScope(owner O) error {
	if r.kind.ClusterScoped == (owner.GetNamespace() == "") {
		return nil
	}
	where := "no namespace"
	if r.kind.ClusterScoped {
		where = "a namespace"
	}
	return fmt.Errorf("controller: %s %q: it is in %s, and Kind.ClusterScoped is %t", r.kind.Owner.Kind, object.Name(owner), where, r.kind.ClusterScoped)
}

// end completes what is told of the pass. A refusal is no error to the caller: what else asks
// for a requeue stays.
func (p *pass[O, C]) end(err error) {
	if p.state != nil {
		p.InFlight = len(p.state.known.Open())
	}
	failed := err != nil && !onlyRefused(err)
	p.wentByRead(failed)
	p.Err, p.Calls = err, p.calls.all()
	p.requeue(failed)
}

// A pass is one call of Sync.
type pass[O, C Object] struct {
	*reconciler[O, C]
	Pass[O, C]
	calls  calls
	cached O // the owner as the cache has it: Owner, unless the pass goes by what it has read

	key   expectations.Key
	spec  replicas.Spec[C]
	asked replicas.Spec[C] // spec as the Kind made it
	rules status.Rules[C]
	state *ownerState[C]
	// children is the view that the pass goes by: what is known, laid over what the cache
	// had when the pass read it, from start on.
	children []C
	snapshot ledger.Snapshot[C]
	start    ledger.Moment
	unmet    bool             // the view may lack children, or have some that are gone
	inTerm   int              // the term in which the pass began
	begins   bool             // nothing but that the owner is new to the term makes the view an old one
	counted  []C              // those that the status counts as active
	wanted   sets.Set[string] // see wantedSlots
	// retryAfter is what the server, or a hold, makes an error wait.
	retryAfter time.Duration
	standing   []Gate // of the passes before
	step       step   // how far the pass has come
	// asideBefore is what state.aside was before the pass.
	asideBefore map[types.UID]*aside
	// claimErr is what went wrong with claims, which stops nothing else.
	claimErr error
	// ownerRead says that a read begun in this pass has shown that the server's owner wants
	// what the pass goes by; ownerOld that a read has shown that it does not.
	ownerRead, ownerOld bool
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

// refuse tells the owner's events why it can not be acted on, once for each generation
// and text: annotations change without a new generation.
func (p *pass[O, C]) refuse(err error) {
	if e, ok := asRefused(err); ok && p.state.refused != e.Error() {
		p.state.refused = e.Error()
		p.event(corev1.EventTypeWarning, e.Reason, e.Error())
	}
}

// refuseSpec returns the error of a Spec that failed. An error that is no refusal may pass, so
// the pass is made again. Its event comes once for each generation and text, too.
func (p *pass[O, C]) refuseSpec(err error) error {
	if isRefused(err) {
		p.refuse(err)
		return err
	}
	err = p.failure("Kind.Spec failed: %w", err)
	if p.state.refused != err.Error() {
		p.state.refused = err.Error()
		p.event(corev1.EventTypeWarning, FailedSpec, err.Error())
	}
	return err
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
		p.event(corev1.EventTypeWarning, Panicked, p.failure("a function of the Kind or the client panicked, and the log has the stack: %v", what).Error())
	}
	panic(value)
}

// failure is an error that names the owner.
func (p *pass[O, C]) failure(format string, args ...any) error {
	return fmt.Errorf("controller: %s %q: %w", p.kind.Owner.Kind, object.Name(p.Owner), fmt.Errorf(format, args...))
}
