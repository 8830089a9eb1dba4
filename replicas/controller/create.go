// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/slowstart"
)

// create makes children in slow start. 0 <= created <= scale.Create holds at every
// moment, and what is expected in the end is what was created (K1, K2).
func (p *pass[O, C]) create(ctx context.Context, scale replicas.ScaleOf[C]) error {
	var mu sync.Mutex
	created := map[int]C{}
	p.pending.Set(p.key, expectations.Changes{Creating: scale.Names})
	p.remember()
	defer func() {
		var not expectations.Changes
		for i, name := range scale.Names {
			if _, ok := created[i]; !ok {
				not.Creating = append(not.Creating, name)
			}
		}
		p.pending.Lower(p.key, not)
		p.settleFound(ctx)
	}()
	opts := slowstart.Options{MaxParallel: p.opts.MaxParallel}
	run := slowstart.Run(ctx, scale.Create, opts, func(ctx context.Context, i int) error {
		child, err := p.createOne(ctx, scale, i)
		if err == nil {
			mu.Lock()
			created[i] = child
			mu.Unlock()
		}
		p.tellCreated(child, err)
		return err
	})
	for _, i := range run.Succeeded {
		p.Created = append(p.Created, created[i])
	}
	return p.created(run)
}

// createOne creates one child. If its name was sent before, there may have been
// another child of that name, whose events settle the creation of this one too: then
// it is the UID that tells whether the cache shows it.
func (p *pass[O, C]) createOne(ctx context.Context, scale replicas.ScaleOf[C], i int) (C, error) {
	child, err := scale.New(i)
	if err != nil {
		return child, err
	}
	namespace, again := p.state.names.namespace(child.GetName())
	if again {
		child.SetNamespace(namespace)
	}
	created, err := p.send(ctx, child)
	if err == nil && again && created.GetUID() != "" {
		p.state.proven.found(created, p.opts.Now())
	}
	return created, err
}

// send sends a creation. One that fails may have taken effect all the same: then the
// child is there, and created.
func (p *pass[O, C]) send(ctx context.Context, child C) (C, error) {
	name := nameOf(child)
	p.state.names.sent(name, p.opts.Now())
	answer, err := p.client.Create(ctx, child)
	if err == nil && !object.IsNil(answer) && nameOf(answer) != name {
		err = fmt.Errorf("the creation of %q was answered with %q", name, object.Name(answer))
	}
	if err != nil {
		return p.lookForCreated(ctx, name, err)
	}
	p.state.names.resolved(name.Name)
	if object.IsNil(answer) {
		return child, nil
	}
	p.wrote(answer.GetResourceVersion())
	if !p.isOurs(answer) {
		return answer, p.strange(ctx, answer)
	}
	return answer, nil
}

// created tells what the creations mean for the pass and for later ones.
func (p *pass[O, C]) created(run slowstart.Result) error {
	p.Failed += len(run.Failed)
	p.Skipped = run.Skipped
	if run.Err == nil || len(run.Succeeded) > 0 {
		p.state.creations = hold{}
	}
	if run.Err == nil {
		p.state.strange = hold{}
		return nil
	}
	errs := make([]error, len(run.Failed))
	for i, failure := range run.Failed {
		errs[i] = failure.Err
		p.refuse(failure.Err)
	}
	if p.namespaceEnds(errs) {
		return nil
	}
	p.holdAfter(errs)
	err := summarize(run)
	p.ScaleErr, p.undeleted = joinErrors(err, p.ScaleErr), false
	return p.failure("creating pods: %w", err)
}

// tellCreated tells of a creation. What New refuses is told once, after the run.
func (p *pass[O, C]) tellCreated(child C, err error) {
	_, refused := asRefused(err)
	switch {
	case err == nil:
		p.event(corev1.EventTypeNormal, SuccessfulCreate, "Created pod: "+child.GetName())
	case refused:
	case !namespaceIsGoing(err):
		p.event(corev1.EventTypeWarning, FailedCreate, "Error creating: "+err.Error())
	}
}

// namespaceEnds holds creations if one failed because the namespace is going,
// and reports whether that is all that failed: then it is no error.
func (p *pass[O, C]) namespaceEnds(errs []error) bool {
	if !slices.ContainsFunc(errs, namespaceIsGoing) {
		return false
	}
	p.state.creations.double(p.opts.Now(), namespaceHoldFirst, namespaceHoldLast)
	p.retryAfter = p.state.creations.wait
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil && !namespaceIsGoing(err) }) {
		return false
	}
	p.Waiting = true
	p.comeBack(p.state.creations.wait)
	return true
}

// holdAfter holds creations if trying again soon is useless: the quota is full,
// the server makes something else of them, or it said when.
func (p *pass[O, C]) holdAfter(errs []error) {
	now, wait := p.opts.Now(), time.Duration(0)
	if slices.ContainsFunc(errs, quotaIsFull) {
		p.state.creations.double(now, quotaHoldFirst, quotaHoldLast)
		p.state.creations.at = p.inQuota() + len(p.Created)
		wait = p.state.creations.wait
	}
	if slices.ContainsFunc(errs, func(err error) bool { return errors.As(err, new(strangeError)) }) {
		p.state.strange.double(now, strangeHoldFirst, strangeHoldLast)
		wait = max(wait, p.state.strange.wait)
	}
	if d := serverDelay(errs); d > wait {
		p.state.creations = hold{since: now, wait: d}
		wait = d
	}
	p.retryAfter = max(p.retryAfter, wait)
}

// inQuota counts the owner's children that a quota counts: one that is being
// deleted makes room when it is gone.
func (p *pass[O, C]) inQuota() int { return len(p.Active) + len(p.Terminating) }

// afterFailures is how long creations wait since children of the owner end as soon
// as they are created: it looks at those that are younger than ten minutes.
func (p *pass[O, C]) afterFailures() time.Duration {
	if !p.opts.BackOffFailed {
		return 0
	}
	const young = 10 * time.Minute
	var newest time.Time
	var wait time.Duration
	for _, c := range p.children {
		made := c.GetCreationTimestamp().Time
		if c.GetDeletionTimestamp() != nil || p.rules.Active(c) || !p.controls(c) || p.Now.Sub(made) > young {
			continue
		}
		wait = min(max(2*wait, failedHoldFirst), failedHoldLast)
		if made.After(newest) {
			newest = made
		}
	}
	if wait == 0 {
		return 0
	}
	return min(max(wait-p.Now.Sub(newest), 0), wait)
}
