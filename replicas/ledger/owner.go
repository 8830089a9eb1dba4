// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// An Owner is a newer state of the owner than the cache has, as calls have shown it. The zero value
// means that the cache has the newest owner that is known.
type Owner struct {
	Is   metav1.Object // as a call has shown it; nil if it is gone
	Gone bool          // the server does not have it, even if the cache does
	// Version is the version of Is or, if the owner is gone, of the owner that the cache had. It is ""
	// if no version of the cache proves that the cache shows Is.
	Version string
}

// Owner returns what is known of the owner.
func (l *Ledger[C]) Owner() Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// OwnerTold notes the owner as a call has shown it last. The zero Owner notes that the cache shows it
// too.
func (l *Ledger[C]) OwnerTold(is Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = is
}
