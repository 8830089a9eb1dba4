// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/replicakit/replicakit/internal/backoff"
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
		if p.creationsHeld(p.Owner.GetNamespace()) {
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
		if !p.creationsHeld(b.namespace) {
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

// creationsHeld reports whether the creations in a namespace are held still.
func (p *pass[O, C]) creationsHeld(namespace string) (are bool) {
	if len(p.state.holds) == 0 {
		return false
	}
	for _, reason := range []Reason{NamespaceGoing, QuotaFull, RetryAfter, CreationFailed, ChangedByWebhook} {
		are = p.held(reason, namespace, namespace, p.inQuota(namespace)) || are
	}
	return are
}

// holdCreations holds the creations in a namespace after a failure, once more.
func (p *pass[O, C]) holdCreations(reason Reason, namespace string, why error) *hold {
	h := p.state.holds.of(reason, namespace)
	reason.grow(&h.Hold, p.opts.Now())
	h.why = why
	p.gate(reason, namespace, h.Wait, why)
	return h
}

// namespaceEnds holds creations if one failed because the namespace is going,
// and reports whether that is all that failed: then it is no error.
func (p *pass[O, C]) namespaceEnds(namespace string, errs []error) bool {
	i := slices.IndexFunc(errs, namespaceIsGoing)
	if i < 0 {
		return false
	}
	p.holdCreations(NamespaceGoing, namespace, errs[i])
	return !slices.ContainsFunc(errs, func(err error) bool { return err != nil && !namespaceIsGoing(err) })
}

// holdAfter holds creations if trying again soon is useless: the quota is full,
// the server makes something else of them, or it said when.
func (p *pass[O, C]) holdAfter(namespace string, errs []error) {
	if i := slices.IndexFunc(errs, quotaIsFull); i >= 0 {
		p.holdCreations(QuotaFull, namespace, errs[i]).At = p.inQuota(namespace) + countIn(namespace, p.Created)
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.As(err, new(strangeError)) }); i >= 0 {
		p.holdCreations(ChangedByWebhook, namespace, errs[i])
	}
	if i := slices.IndexFunc(errs, apierrors.IsInternalError); i >= 0 {
		p.holdCreations(CreationFailed, namespace, errs[i])
	}
	if d := serverDelay(errs); d > 0 {
		p.holdAsTold(RetryAfter, namespace, d, errors.Join(errs...))
	}
}

// holdAsTold holds calls for as long as the server says.
func (p *pass[O, C]) holdAsTold(reason Reason, key string, d time.Duration, why error) {
	*p.state.holds.of(reason, key) = hold{Hold: backoff.Hold{Since: p.opts.Now(), Wait: d}, why: why}
	p.gate(reason, key, d, why)
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
