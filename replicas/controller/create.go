// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/slowstart"
)

// creations is the creation step of a pass.
type creations[O, C Object] struct {
	*pass[O, C]
	scale replicas.Scale[C]
	each  []creation[C]
	start ledger.Moment // when the calls began
	late  []string      // names of children that a look found
}

// A creation is what became of one child that is to be created.
type creation[C Object] struct {
	name  types.NamespacedName // zero if it was not sent
	ended time.Time            // when its call did, zero if that panicked
	again bool                 // it was sent before, under this name
	made  bool
	sent  C
	child C // as the server answered, or as it was sent if the answer had no object
	err   error
}

// create makes children in slow start. 0 <= created <= scale.Create holds at every
// moment, and what is expected in the end is what was created (K1, K2).
func (p *pass[O, C]) create(ctx context.Context, scale replicas.Scale[C]) error {
	if goOn, err := p.lookForOthers(ctx, scale.Names); !goOn {
		return err
	}
	c := &creations[O, C]{pass: p, scale: scale, each: make([]creation[C], scale.Create)}
	p.pending.Set(p.key, expectations.Changes{Creating: scale.Names})
	p.remember()
	defer func(before int) { p.noteRound(before) }(len(p.Created))
	defer c.settle(ctx)
	return c.run(ctx)
}

// settle expects only what was created.
func (c *creations[O, C]) settle(ctx context.Context) {
	var not expectations.Changes
	for i, name := range c.scale.Names {
		if !c.each[i].made {
			not.Creating = append(not.Creating, name)
		}
	}
	c.pending.Lower(c.key, not)
	c.settleLate(ctx)
}

// run makes the calls, and looks for the children whose creation failed when all calls
// have ended.
func (c *creations[O, C]) run(ctx context.Context) (err error) {
	parts := c.parts()
	c.call(ctx, parts)
	c.deleteStrange(ctx)
	c.lookForLost(ctx)
	for i := range c.each {
		if e := &c.each[i]; e.made {
			c.Created = append(c.Created, e.child)
		} else {
			c.tellFailed(e.err)
		}
	}
	for _, part := range parts {
		err = joinErrors(err, c.ended(part.namespace, c.afterLook(part)))
	}
	return err
}

// call makes the calls of each namespace in a slow start of its own: a namespace that
// refuses children does not stop the others. Then it notes the answers, in the order of
// the creations.
func (c *creations[O, C]) call(ctx context.Context, parts []part) {
	c.start = c.state.known.Start()
	defer func() {
		for i := range c.each {
			c.note(&c.each[i])
		}
	}()
	opts := slowstart.Options{MaxParallel: max(c.opts.MaxParallel/max(len(parts), 1), 1)}
	call := func(part *part) {
		part.run = slowstart.Run(ctx, len(part.indices), opts, func(ctx context.Context, i int) error {
			return c.one(ctx, part.indices[i])
		})
	}
	if len(parts) == 1 {
		call(&parts[0])
		return
	}
	slowstart.Run(context.WithoutCancel(ctx), len(parts), c.all(len(parts)), func(_ context.Context, n int) error {
		call(&parts[n])
		return nil
	})
}

// A part is the creations in one namespace, by their indices.
type part struct {
	namespace string
	indices   []int
	run       slowstart.Result
}

func (c *creations[O, C]) parts() (parts []part) {
	for i := range c.each {
		namespace := c.Owner.GetNamespace()
		if c.newborns != nil {
			namespace = c.newborns[i].namespace
		}
		n := slices.IndexFunc(parts, func(p part) bool { return p.namespace == namespace })
		if n < 0 {
			n, parts = len(parts), append(parts, part{namespace: namespace})
		}
		parts[n].indices = append(parts[n].indices, i)
	}
	return parts
}

// afterLook returns what became of a part, with what a look found.
func (c *creations[O, C]) afterLook(part part) slowstart.Result {
	run := part.run
	if len(run.Failed) == 0 {
		return run
	}
	var errs []error
	run.Failed = nil
	for _, f := range part.run.Failed {
		e := &c.each[part.indices[f.Index]]
		if e.made {
			run.Succeeded = append(run.Succeeded, f.Index)
			continue
		}
		if e.err != nil { // a call that ended its goroutine has none
			f.Err = e.err
		}
		run.Failed, errs = append(run.Failed, f), append(errs, f.Err)
	}
	run.Err = joined.Errors(errs)
	return run
}

// one makes one call. It notes nothing but the answer, as others are under way, and tells
// of the child.
func (c *creations[O, C]) one(ctx context.Context, i int) error {
	e := &c.each[i]
	if e.sent, e.err = c.newborn(i); e.err != nil {
		return e.err
	}
	e.name = nameOf(e.sent) // the client may change the child
	e.child, e.err = c.client.Create(ctx, e.sent)
	e.ended = c.opts.Now()
	switch {
	case e.err != nil || object.IsNil(e.child):
	case nameOf(e.child) != e.name:
		e.err = fmt.Errorf("the creation of %q was answered with %q", e.name, object.Name(e.child))
	case !c.isOurs(e.child):
		e.err = strange(e.child)
	}
	if e.err == nil { // now, as the other calls may take long
		c.tellCreated(e.name.Name)
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

// note notes what the end of a call says about its name. After a panic the creation may
// take effect yet.
func (c *creations[O, C]) note(e *creation[C]) {
	if e.name.Name == "" {
		return
	}
	known := c.state.known
	_, e.again = known.SentTo(e.name.Name)
	known.Sending(e.name, cmp.Or(e.ended, c.opts.Now()))
	switch {
	case e.ended.IsZero():
	case e.err == nil && object.IsNil(e.child): // nothing tells which child it made
		known.Refused(e.name)
		c.made(e, c.start, e.sent)
	case e.err == nil:
		c.wrote(e.child.GetResourceVersion())
		known.Bears(e.name, object.ID(e.child), ledger.Replica, true)
		c.made(e, c.start, e.child)
	case errors.As(e.err, new(strangeError)):
		c.wrote(e.child.GetResourceVersion())
		known.Bears(e.name, object.ID(e.child), ledger.Stranger, true)
		known.Stray(e.child)
	case isFinal(e.err):
		known.Refused(e.name)
	}
}

// made notes a child that was created. If its name was sent before, there may have been
// another child of that name, whose events settle the creation of this one too: then it
// is the UID that tells whether the cache shows it.
func (c *creations[O, C]) made(e *creation[C], start ledger.Moment, child C) {
	e.made, e.child, e.err = true, child, nil
	if e.again && child.GetUID() != "" {
		c.believe(start, child)
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
func (c *creations[O, C]) ended(namespace string, run slowstart.Result) error {
	c.Failed += len(run.Failed)
	c.Skipped += run.Skipped
	if run.Err == nil || len(run.Succeeded) > 0 {
		delete(c.state.creations, namespace)
	}
	if run.Err == nil {
		delete(c.state.strange, namespace)
		if run.Skipped > 0 { // as what failed turned out to be there
			c.comeBack(1)
		}
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

// namespaceEnds holds creations if one failed because the namespace is going,
// and reports whether that is all that failed: then it is no error.
func (c *creations[O, C]) namespaceEnds(namespace string, errs []error) bool {
	if !slices.ContainsFunc(errs, namespaceIsGoing) {
		return false
	}
	h := c.state.creations.of(namespace)
	h.double(c.opts.Now(), namespaceHoldFirst, namespaceHoldLast)
	c.retryAfter = max(c.retryAfter, h.wait)
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil && !namespaceIsGoing(err) }) {
		return false
	}
	c.Waiting = true
	c.comeBack(h.wait)
	return true
}

// holdAfter holds creations if trying again soon is useless: the quota is full,
// the server makes something else of them, or it said when.
func (c *creations[O, C]) holdAfter(namespace string, errs []error) {
	now, wait := c.opts.Now(), time.Duration(0)
	if slices.ContainsFunc(errs, quotaIsFull) {
		h := c.state.creations.of(namespace)
		h.double(now, quotaHoldFirst, quotaHoldLast)
		h.at, wait = c.inQuota(namespace)+countIn(namespace, c.Created), h.wait
	}
	if slices.ContainsFunc(errs, func(err error) bool { return errors.As(err, new(strangeError)) }) {
		h := c.state.strange.of(namespace)
		h.double(now, strangeHoldFirst, strangeHoldLast)
		wait = max(wait, h.wait)
	}
	if d := serverDelay(errs); d > wait {
		*c.state.creations.of(namespace) = hold{since: now, wait: d}
		wait = d
	}
	c.retryAfter = max(c.retryAfter, wait)
}

// inQuota counts the owner's children that the quota of a namespace counts: one that is
// being deleted makes room when it is gone.
func (p *pass[O, C]) inQuota(namespace string) int {
	return countIn(namespace, p.Active) + countIn(namespace, p.Terminating)
}

func countIn[C Object](namespace string, children []C) (n int) {
	for _, c := range children {
		if c.GetNamespace() == namespace {
			n++
		}
	}
	return n
}

// A newborn is a child that is to be created for an owner that is in no namespace. New
// may choose another one each time that it is asked.
type newborn[C Object] struct {
	namespace string
	child     C
	err       error
}

// notHeld leaves out the creations that must wait, and asks for a requeue when they need
// not: those of a namespace while it is held.
func (p *pass[O, C]) notHeld(scale replicas.Scale[C]) replicas.Scale[C] {
	if p.newborns = nil; !p.kind.ClusterScoped {
		if p.waits(p.creationsHeld(p.Owner.GetNamespace())) {
			return replicas.Scale[C]{}
		}
		return scale
	}
	left := scale
	left.Names = nil
	for i, name := range scale.Names {
		var b newborn[C]
		if b.child, b.err = scale.New(i); b.err == nil {
			if namespace, again := p.state.known.SentTo(name); again { // it may have landed there
				b.child.SetNamespace(namespace)
			}
			b.namespace = b.child.GetNamespace()
		}
		if !p.waits(p.creationsHeld(b.namespace)) {
			p.newborns, left.Names = append(p.newborns, b), append(left.Names, name)
		}
	}
	left.Create = len(left.Names)
	return left
}

// creationsHeld is how long the creations in a namespace are held still.
func (p *pass[O, C]) creationsHeld(namespace string) (wait time.Duration) {
	if h := p.state.creations[namespace]; h != nil {
		wait = h.remaining(p.Now, p.inQuota(namespace))
	}
	if h := p.state.strange[namespace]; h != nil {
		wait = max(wait, h.remaining(p.Now, 0))
	}
	return wait
}
