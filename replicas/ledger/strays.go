// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Stray records that the object c is a stray. The object must not be nil. A stray was created for the
// owner, but is not one of the owner's children, because the server changed the object when it created the
// object. For example, a webhook may remove the labels that the owner's selector requires. A stray must be
// deleted.
func (l *Ledger[C]) Stray(c C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strays = append(l.strays, c)
}

// NoStray removes an object from the strays. Call NoStray if the object was deleted, or if any owner now
// controls it.
func (l *Ledger[C]) NoStray(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strays = slices.DeleteFunc(l.strays, func(c C) bool { return idOf(c) == id })
}

// Strays returns the strays in the order of the calls to Stray. The caller owns the slice.
func (l *Ledger[C]) Strays() []C {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.strays)
}
