// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// strays are children that the server made another's and that could not be deleted
// again yet. The zero value is empty.
type strays[C Object] struct {
	mu   sync.Mutex
	left []C
	hold hold // until they are tried again
}

// add keeps what could not be deleted, now, until later.
func (s *strays[C]) add(now time.Time, left ...C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left = append(s.left, left...); len(left) > 0 {
		s.hold.double(now, strayFirst, strayLast)
	}
}

func (s *strays[C]) remaining(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold.remaining(now, 0)
}

func (s *strays[C]) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.left) > 0
}

// take returns what is to be tried again now.
func (s *strays[C]) take(now time.Time) []C {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) == 0 || s.hold.remaining(now, 0) > 0 {
		return nil
	}
	left := s.left
	s.left = nil
	return left
}

// isOurs reports whether a child is what was meant to be created. One without UID,
// as a fake client answers, tells nothing.
func (p *pass[O, C]) isOurs(c C) bool {
	return c.GetUID() == "" || p.controls(c) && p.spec.Selector.Matches(labels.Set(c.GetLabels()))
}

// A strangeError says that the server did not make the child that it was sent.
type strangeError struct{ error }

// strange deletes a child that was to be ours and is not, as a webhook changed it:
// else there would be ever more of them.
func (p *pass[O, C]) strange(ctx context.Context, c C) error {
	err := strangeError{fmt.Errorf("%q is not the owner's: the server gave it the labels %q and %d owner references", c.GetName(), labels.Set(c.GetLabels()), len(c.GetOwnerReferences()))}
	if deleteErr := p.deleteStray(ctx, c); deleteErr != nil {
		p.state.strays.add(p.opts.Now(), c)
		return strangeError{errors.Join(err, deleteErr)}
	}
	return err
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
	err := p.deleteUnchanged(ctx, c)
	if !apierrors.IsConflict(err) {
		return err
	}
	found, err := p.client.Get(ctx, c.GetNamespace(), c.GetName())
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
	return !p.isOurs(c) && (metav1.GetControllerOfNoCopy(c) == nil || p.controls(c))
}

// deleteUnchanged deletes a child if it is still as it was seen.
func (p *pass[O, C]) deleteUnchanged(ctx context.Context, c C) error {
	uid, version := c.GetUID(), c.GetResourceVersion()
	only := &metav1.Preconditions{UID: &uid}
	if version != "" {
		only.ResourceVersion = &version
	}
	_, err := p.client.Delete(ctx, c, metav1.DeleteOptions{Preconditions: only})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// deletePendingStrays deletes what an earlier pass could not, unless the spec will be
// refused: then nobody can tell what a stray is.
func (p *pass[O, C]) deletePendingStrays(ctx context.Context) {
	if object.IsNil(p.spec.Selector) {
		return
	}
	var left []C
	for _, c := range p.state.strays.take(p.opts.Now()) {
		if p.deleteStray(ctx, c) != nil {
			left = append(left, c)
		}
	}
	p.state.strays.add(p.opts.Now(), left...)
}
