// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// isOurs reports whether a created child is the owner's, or an orphan that the next pass
// adopts because a webhook took only its owner references. An answer without a UID, as a fake
// client gives it, proves nothing.
func (p *pass[O, C]) isOurs(c C) bool {
	return c.GetUID() == "" || !p.isAnothers(c) && p.spec.Selector.Matches(labels.Set(c.GetLabels()))
}

// isAnothers reports whether a child has another controller than the owner.
func (p *pass[O, C]) isAnothers(c C) bool {
	return metav1.GetControllerOfNoCopy(c) != nil && !p.controls(c)
}

// A strangeError says that the server did not make the child that it was sent.
type strangeError struct{ error }

func strange[C Object](c C) error {
	return strangeError{fmt.Errorf("%q is not the owner's: the server gave it the labels %q and %d owner references", c.GetName(), labels.Set(c.GetLabels()), len(c.GetOwnerReferences()))}
}

// letGo leaves a child to the next pass, which releases it: it is the owner's and does
// not match. Nobody saw how it was created, so its labels may be its user's doing,
// and not those of a webhook.
func (p *pass[O, C]) letGo(start ledger.Moment, c C) error {
	p.believe(start, c)
	return strangeError{fmt.Errorf("%q is there, but its labels %q do not match: it is left alone", c.GetName(), labels.Set(c.GetLabels()))}
}

// deleteStray deletes a child as long as it is nobody's: it may be adopted at any
// moment, by us or by another process.
func (p *pass[O, C]) deleteStray(ctx context.Context, c C) error {
	if p.isOurs(c) { // the selector has changed since
		return nil
	}
	err := p.deleteUnchanged(ctx, c)
	if !apierrors.IsConflict(err) {
		return err
	}
	found, err := p.askChild(ctx, nameOf(c))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case object.IsNil(found):
		return errNoObject
	case found.GetUID() != c.GetUID() || !p.isStray(found):
		return nil
	}
	return p.deleteUnchanged(ctx, found)
}

// isStray reports whether a child is neither ours nor that of another.
func (p *pass[O, C]) isStray(c C) bool {
	return !p.isOurs(c) && !p.isAnothers(c)
}

// deleteUnchanged deletes a child if it is still as it was seen.
func (p *pass[O, C]) deleteUnchanged(ctx context.Context, c C) error {
	uid, version := c.GetUID(), c.GetResourceVersion()
	only := &metav1.Preconditions{UID: &uid}
	if version != "" {
		only.ResourceVersion = &version
	}
	err := p.sendDelete(ctx, c, metav1.DeleteOptions{Preconditions: only})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// deletePendingStrays deletes what an earlier pass could not, unless the spec will be
// refused: then nobody can tell what a stray is.
func (p *pass[O, C]) deletePendingStrays(ctx context.Context) {
	pending := p.state.known.Strays()
	if object.IsNil(p.spec.Selector) {
		return
	}
	for _, c := range pending[:min(len(pending), fewStrays)] {
		if !p.held(StrayLeft, string(object.ID(c)), c.GetName(), 0) {
			_ = p.dropStray(ctx, c)
		}
	}
}

// fewStrays is how many strays are looked at: others that could not be deleted wait for these.
const fewStrays = 5

// dropStray deletes a stray, or holds it back for a while.
func (p *pass[O, C]) dropStray(ctx context.Context, c C) error {
	id := object.ID(c)
	err := p.deleteStray(ctx, c)
	if err == nil {
		p.state.known.NoStray(id)
		p.state.holds.end(string(id), StrayLeft)
		return nil
	}
	h := p.state.holds.of(StrayLeft, string(id))
	StrayLeft.grow(&h.Hold, p.opts.Now())
	h.why = err
	p.gate(StrayLeft, c.GetName(), max(h.Wait, serverDelay([]error{err})), err)
	return err
}
