// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// An Owner is a state of the owner that a call has shown and that is newer than the one in the cache. The
// zero Owner means that the cache has the newest known state.
type Owner struct {
	Is   metav1.Object // the owner as a call has shown it; nil if the owner is gone
	Gone bool          // the server does not have the owner, even if the cache has it
	// Version is the resourceVersion of Is. If the owner is gone, Version is the resourceVersion of the
	// owner that the cache had. If no version in the cache can prove that the cache shows Is, Version is
	// "".
	Version string
}

// Owner returns the newer state of the owner that the last call to OwnerTold noted.
func (l *Ledger[C]) Owner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// OwnerTold notes the state of the owner that the last call has shown. Pass the zero Owner if the cache
// shows the same state.
func (l *Ledger[C]) OwnerTold(is Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = is
}
