// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
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
	"github.com/replicakit/replicakit/status"
)

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
