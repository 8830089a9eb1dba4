// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Stray notes that the server made c different from the child that was sent, such as without the owner's
// labels. Such a stray must be deleted again. c must not be nil.
func (l *Ledger[C]) Stray(c C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strays = append(l.strays, c)
}

// NoStray notes that a stray is deleted or is not a stray any more, because this owner or another one has it.
func (l *Ledger[C]) NoStray(id types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strays = slices.DeleteFunc(l.strays, func(c C) bool { return idOf(c) == id })
}

// Strays returns the strays, in the order in which they were noted. The caller owns the slice.
func (l *Ledger[C]) Strays() []C {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.strays)
}
