// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"time"

	"github.com/replicakit/replicakit/replicas"
)

// A newborn is a child that is to be created for an owner that is in no namespace. New
// may choose another one each time that it is asked.
type newborn[C Object] struct {
	namespace string
	child     C
	err       error
}

// notHeld leaves out the creations that must wait, and asks for a requeue when they need
// not: those of a namespace while it is held. If the owner is in no namespace, newborns
// are the children that are left.
func (p *pass[O, C]) notHeld(scale replicas.Scale[C]) (left replicas.Scale[C], newborns []newborn[C]) {
	if !p.kind.ClusterScoped {
		if p.waits(p.creationsHeld(p.Owner.GetNamespace())) {
			scale.Create, scale.Names = 0, nil
		}
		return scale, nil
	}
	left = scale
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
			newborns, left.Names = append(newborns, b), append(left.Names, name)
		}
	}
	left.Create = len(left.Names)
	return left, newborns
}

// named returns the newborns with some of the names. All of them have names in their order.
func named[C Object](newborns []newborn[C], names, some []string) (left []newborn[C]) {
	if newborns == nil {
		return nil
	}
	for _, name := range some {
		left = append(left, newborns[slices.Index(names, name)])
	}
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

// namespaceEnds holds creations if one failed because the namespace is going,
// and reports whether that is all that failed: then it is no error.
func (p *pass[O, C]) namespaceEnds(namespace string, errs []error) bool {
	if !slices.ContainsFunc(errs, namespaceIsGoing) {
		return false
	}
	h := p.state.creations.of(namespace)
	h.double(p.opts.Now(), namespaceHoldFirst, namespaceHoldLast)
	p.retryAfter = max(p.retryAfter, h.Wait)
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil && !namespaceIsGoing(err) }) {
		return false
	}
	p.Waiting = true
	p.comeBack(h.Wait)
	return true
}

// holdAfter holds creations if trying again soon is useless: the quota is full,
// the server makes something else of them, or it said when.
func (p *pass[O, C]) holdAfter(namespace string, errs []error) {
	now, wait := p.opts.Now(), time.Duration(0)
	if slices.ContainsFunc(errs, quotaIsFull) {
		h := p.state.creations.of(namespace)
		h.double(now, quotaHoldFirst, quotaHoldLast)
		h.At, wait = p.inQuota(namespace)+countIn(namespace, p.Created), h.Wait
	}
	if slices.ContainsFunc(errs, func(err error) bool { return errors.As(err, new(strangeError)) }) {
		h := p.state.strange.of(namespace)
		h.double(now, strangeHoldFirst, strangeHoldLast)
		wait = max(wait, h.Wait)
	}
	if d := serverDelay(errs); d > wait {
		*p.state.creations.of(namespace) = hold{Since: now, Wait: d}
		wait = d
	}
	p.retryAfter = max(p.retryAfter, wait)
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
