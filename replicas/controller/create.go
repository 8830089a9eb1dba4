// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
)

// creations is the creation step of a pass.
type creations[O, C Object] struct {
	*pass[O, C]
	scale    replicas.Scale[C]
	newborns []newborn[C] // the children to create, for an owner that is in no namespace
	each     []creation[C]
	start    ledger.Moment // when the calls began
}

// A creation is what became of one child that is to be created.
type creation[C Object] struct {
	name  types.NamespacedName // zero if it was not sent
	made  bool
	sent  C
	child C // as the server answered
	err   error
}

// create makes children in slow start. 0 <= created <= scale.Create holds at every
// moment, and later passes wait until the cache shows what was created (K1, K2).
func (p *pass[O, C]) create(ctx context.Context, scale replicas.Scale[C], newborns []newborn[C]) error {
	c := &creations[O, C]{pass: p, scale: scale, newborns: newborns, each: make([]creation[C], scale.Create)}
	defer func(before int) { p.noteRound(before) }(len(p.Created))
	return c.run(ctx)
}

// run makes the calls, in rounds. Each round ends with a look for the children whose creation
// failed. If all of them are there, the slow start goes on where it stopped.
func (c *creations[O, C]) run(ctx context.Context) (err error) {
	parts := c.parts()
	for goOn := parts; len(goOn) > 0; {
		calls := c.call(ctx, goOn)
		c.deleteStrange(ctx, calls)
		c.lookForLost(ctx, calls)
		goOn = slices.DeleteFunc(slices.Clone(goOn), func(part *part) bool { return !c.afterLook(part) })
	}
	for i := range c.each {
		if e := &c.each[i]; e.made {
			c.Created = append(c.Created, e.child)
			if !c.controls(e.child) { // an orphan counts until the next pass adopts it
				c.comeBack(1)
			}
		} else {
			c.tellFailed(e.err)
		}
	}
	for _, part := range parts {
		err = joinErrors(err, c.ended(part))
	}
	c.holdSlots()
	return err
}

// holdSlots holds the slots whose names other objects have. That is no error of the pass, as
// others have their turn before the hold ends.
func (c *creations[O, C]) holdSlots() {
	var errs []error
	for i := range c.each {
		switch e := &c.each[i]; {
		case e.made:
			c.state.holds.end(e.name.Name, NameTaken)
		case c.isSlotTaken(e.err):
			c.holdSlot(e.name.Name, e.err)
			errs = append(errs, e.err)
		}
	}
	if len(errs) == 0 {
		return
	}
	c.Failed += len(errs)
	c.ScaleErr, c.undeleted = joinErrors(joined.Errors(errs), c.ScaleErr), false
	if c.scale.Deferred > 0 {
		c.comeBack(1)
	}
}

// call goes on with the calls of each namespace in a slow start of its own: a namespace that
// refuses children does not stop the others. It returns all creations of the round, also those
// that were not sent.
func (c *creations[O, C]) call(ctx context.Context, parts []*part) (calls []*creation[C]) {
	for _, part := range parts {
		for _, i := range part.left {
			calls = append(calls, &c.each[i])
		}
	}
	c.start = c.state.known.Start()
	call := func(part *part) {
		// Batches of 1, 2, 4 ... of which the last made n calls in all: the next one makes n+1.
		opts := slowstart.Options{InitialBatchSize: part.made + 1, MaxParallel: max(c.opts.MaxParallel/len(parts), 1)}
		part.run = slowstart.Run(ctx, len(part.left), opts, func(ctx context.Context, i int) error {
			return c.one(ctx, part.left[i])
		})
	}
	if len(parts) == 1 {
		call(parts[0])
		return calls
	}
	slowstart.Run(context.WithoutCancel(ctx), len(parts), c.all(len(parts)), func(_ context.Context, n int) error {
		call(parts[n])
		return nil
	})
	return calls
}

// A part is the creations in one namespace.
type part struct {
	namespace string
	left      []int // the indices of those that are not made
	made      int
	run       slowstart.Result // of the last round
}

func (c *creations[O, C]) parts() (parts []*part) {
	for i := range c.each {
		namespace := c.Owner.GetNamespace()
		if c.newborns != nil {
			namespace = c.newborns[i].namespace
		}
		n := slices.IndexFunc(parts, func(p *part) bool { return p.namespace == namespace })
		if n < 0 {
			n, parts = len(parts), append(parts, &part{namespace: namespace})
		}
		parts[n].left = append(parts[n].left, i)
	}
	return parts
}

// afterLook takes what a look found into what became of a part, and reports whether the part
// goes on, because all calls of the round took effect and others are left.
func (c *creations[O, C]) afterLook(part *part) (goesOn bool) {
	run := &part.run
	if len(run.Failed) > 0 {
		var errs []error
		run.Failed = slices.DeleteFunc(run.Failed, func(f slowstart.Failure) bool { return c.each[part.left[f.Index]].made })
		for i := range run.Failed {
			f := &run.Failed[i]
			f.Err = cmp.Or(c.each[part.left[f.Index]].err, f.Err) // a call that ended its goroutine has none
			errs = append(errs, f.Err)
		}
		run.Err = joined.Errors(errs)
	}
	called := len(part.left) - run.Skipped
	part.made += called - len(run.Failed)
	part.left = part.left[called:]
	return run.Err == nil && run.Skipped > 0
}

// one makes one call, and tells of the child at once, as the other calls may take long.
func (c *creations[O, C]) one(ctx context.Context, i int) error {
	e := &c.each[i]
	if e.sent, e.err = c.newborn(i); e.err != nil {
		return e.err
	}
	e.name = nameOf(e.sent) // the client may change the child
	e.child, e.err = c.askCreate(ctx, c.start, e.sent)
	if e.made = e.err == nil; e.made {
		c.tellCreated(e.name.Name)
	}
	if c.isSlotTaken(e.err) {
		return nil // which says nothing about the others
	}
	return e.err
}

// newborn returns the child to send.
func (c *creations[O, C]) newborn(i int) (C, error) {
	if c.newborns != nil {
		return c.newborns[i].child, c.newborns[i].err
	}
	return c.scale.New(i)
}

// deleteStrange deletes the children that were to be ours and are not, as a webhook changed
// them: else there would be ever more of them.
func (c *creations[O, C]) deleteStrange(ctx context.Context, calls []*creation[C]) {
	for _, e := range calls {
		if !errors.As(e.err, new(strangeError)) {
			continue
		}
		if err := c.dropStray(ctx, e.child); err != nil {
			e.err = strangeError{errors.Join(e.err, err)}
		}
	}
}

// lookForLost looks for the children whose creations failed and may have taken effect
// all the same: when no call is under way any more, in one list if there are many. What
// is there is created; what is not there may come yet.
func (c *creations[O, C]) lookForLost(ctx context.Context, calls []*creation[C]) {
	lost := slices.DeleteFunc(slices.Clone(calls), func(e *creation[C]) bool { return !c.isLost(e) })
	if len(lost) == 0 {
		return
	}
	look := c.looks(ctx, len(lost))
	for _, e := range lost {
		found, there, err := look.find(ctx, e.name)
		switch {
		case err != nil:
		case there:
			c.found(e, look.start, found)
		default:
			c.noneBears(look, e.name)
		}
	}
}

// isLost reports whether a creation failed, but its child may be there: from this
// sending, or from one before it.
func (c *creations[O, C]) isLost(e *creation[C]) bool {
	if e.err == nil || e.name.Name == "" || errors.As(e.err, new(strangeError)) {
		return false
	}
	_, open := c.state.known.SentTo(e.name.Name)
	return open || apierrors.IsAlreadyExists(e.err)
}

// found notes a child that is there although its creation failed.
func (c *creations[O, C]) found(e *creation[C], start ledger.Moment, found C) {
	c.bears(found)
	switch {
	case !c.controls(found) && !c.isOurs(found) || !c.rules.Active(found):
	case !c.isOurs(found):
		e.err = c.letGo(start, found)
	default:
		c.tellCreated(found.GetName())
		c.believe(start, found)
		e.made, e.child, e.err = true, found, nil
	}
}

func (p *pass[O, C]) tellCreated(name string) {
	p.event(corev1.EventTypeNormal, SuccessfulCreate, "Created "+p.childNoun()+": "+name)
}

// tellFailed tells of a creation that failed. What New refuses is told once, after the
// run.
func (p *pass[O, C]) tellFailed(err error) {
	if _, refused := asRefused(err); err != nil && !refused && !namespaceIsGoing(err) {
		p.event(corev1.EventTypeWarning, FailedCreate, "Error creating: "+err.Error())
	}
}

// ended tells what the creations in a namespace mean for the pass and for later ones.
func (c *creations[O, C]) ended(part *part) error {
	namespace, run := part.namespace, part.run
	c.Failed += len(run.Failed)
	c.Skipped += run.Skipped
	if run.Err == nil || part.made > 0 {
		c.state.holds.end(namespace, NamespaceGoing, QuotaFull, RetryAfter, CreationFailed)
	}
	if run.Err == nil {
		c.state.holds.end(namespace, ChangedByWebhook)
		return nil
	}
	errs := make([]error, len(run.Failed))
	for i, failure := range run.Failed {
		errs[i] = failure.Err
		c.refuse(failure.Err)
	}
	if c.namespaceEnds(namespace, errs) {
		return nil
	}
	c.holdAfter(namespace, errs)
	err := summarize(run)
	c.ScaleErr, c.undeleted = joinErrors(err, c.ScaleErr), false
	return c.failure("creating %s: %w", c.childResource.Resource, err)
}
